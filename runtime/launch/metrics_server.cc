#include "runtime/launch/metrics_server.h"

#include <pthread.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

constexpr auto kPatience = std::chrono::seconds(5);  // with one that is slow to ask or to take the answer
constexpr auto kPause = std::chrono::seconds(1);     // after a connection that couldn't be taken
constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";

Response answer(const Request& request, const MetricsServer::Text& text) {
  Response response;
  response.version(request.version());
  response.keep_alive(false);
  response.set(http::field::content_type, kTextFormat);
  if (request.method() != http::verb::get) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET");
  } else if (request.target() != "/metrics") {
    response.result(http::status::not_found);
    response.body() = "there is /metrics\n";
  } else {
    try {
      response.body() = text();
    } catch (const std::exception& error) {
      response.result(http::status::internal_server_error);
      response.body() = std::string(error.what()) + "\n";
    }
  }
  response.prepare_payload();
  return response;
}

// One request and its answer. Lives as long as something of it is under way.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Tcp::socket socket, const MetricsServer::Text& text) : stream_(std::move(socket)), text_(text) {}
  void start() {
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](error_code error, size_t) {
      if (!error) self->reply();
    });
  }

 private:
  void reply() {
    response_ = answer(request_, text_);
    stream_.expires_after(kPatience);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code, size_t) {
      error_code ignored;  // whoever asked may have gone
      self->stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  const MetricsServer::Text& text_;
  beast::flat_buffer buffer_;
  Request request_;
  Response response_;
};

}  // namespace

struct MetricsServer::State {
  State(const Tcp::endpoint& endpoint, Text the_text)
      : text(std::move(the_text)), acceptor(context, endpoint), pause(context) {}
  void accept() {
    acceptor.async_accept([this](error_code error, Tcp::socket socket) {
      if (!error) {
        std::make_shared<Session>(std::move(socket), text)->start();
        return accept();
      }
      // No file descriptors are left, say. That passes.
      pause.expires_after(kPause);
      pause.async_wait([this](error_code) { accept(); });
    });
  }

  const Text text;
  asio::io_context context{1};
  Tcp::acceptor acceptor;
  asio::steady_timer pause;
  std::thread thread;
};

namespace {

Tcp::endpoint endpoint_of(const std::string& address, uint16_t port) {
  error_code error;
  const auto parsed = asio::ip::make_address(address, error);
  if (error) throw UserError("--metrics-address is '" + address + "'; it must be an IP address, as 127.0.0.1 or ::1");
  return {parsed, port};
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, uint16_t port, Text text)
    : state_([&] {
        try {
          return std::make_unique<State>(endpoint_of(address, port), std::move(text));
        } catch (const boost::system::system_error& error) {
          throw UserError("--metrics-port " + std::to_string(port) + ": can't listen at " + address + ": " +
                          error.code().message());
        }
      }()) {
  state_->accept();
  state_->thread = std::thread([state = state_.get()] {
    static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-metrics"));  // for tools, where it is allowed
    state->context.run();
  });
}

MetricsServer::~MetricsServer() {
  state_->context.stop();
  state_->thread.join();
}

uint16_t MetricsServer::port() const { return state_->acceptor.local_endpoint().port(); }

}  // namespace dtorch
