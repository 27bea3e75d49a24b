// --metrics-port: what a job answers to Prometheus, and to others.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <sstream>

#include "dtorch/dtorch.h"
#include "runtime/launch/metrics_server.h"

namespace dtorch {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

// What the server on this machine answers, head and body.
std::string answer_to(uint16_t port, const std::string& request) {
  asio::io_context context;
  Tcp::socket socket(context);
  socket.connect({asio::ip::make_address("127.0.0.1"), port});
  asio::write(socket, asio::buffer(request));
  std::string answer;
  boost::system::error_code error;
  asio::read(socket, asio::dynamic_buffer(answer), error);
  EXPECT_EQ(error, asio::error::eof);
  return answer;
}
std::string get(uint16_t port, const std::string& target) {
  return answer_to(port, "GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

// Samples by name and labels. Every line of the body must be one, or a comment.
std::map<std::string, int64_t> samples_of(const std::string& answer) {
  std::map<std::string, int64_t> samples;
  std::istringstream lines(answer.substr(answer.find("\r\n\r\n") + 4));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) continue;
    const size_t blank = line.rfind(' ');
    EXPECT_NE(blank, std::string::npos) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, blank), std::stoll(line.substr(blank + 1))).second) << line;
  }
  return samples;
}

void in_job(std::vector<std::string> words, int code, const std::function<void(Client&)>& program) {
  words.insert(words.begin(), {"program", "--nodes=2", "--devices=4"});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), code);
}

TEST(Metrics, OfAJobAreItsCountersAndTheMemoryOfEveryDevice) {
  testing::internal::CaptureStderr();
  in_job({"--metrics-port=0"}, 0, [](Client& client) {
    const std::string log = testing::internal::GetCapturedStderr(), said = "metrics at 127.0.0.1, port ";
    ASSERT_NE(log.find(said), std::string::npos) << log;
    const auto port = static_cast<uint16_t>(std::stoi(log.substr(log.find(said) + said.size())));
    const Tensor x = full({1024, 256}, 1.0, {.mesh = init_device_mesh("cpu", {4}), .placements = {Shard(0)}});
    const Tensor whole = x.redistribute({Replicate()});
    static_cast<void>(whole.to_host());
    client.synchronize();
    const std::string answer = get(port, "/metrics");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_NE(answer.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << answer;
    const std::map<std::string, int64_t> samples = samples_of(answer);
    const ClientStats stats = client.stats();
    EXPECT_EQ(samples.at("dtorch_operators_total"), stats.operators);
    EXPECT_EQ(samples.at("dtorch_reads_total"), 1);
    EXPECT_EQ(samples.at("dtorch_kernels_total"), 4);
    EXPECT_GT(samples.at("dtorch_data_bytes_total"), 0);
    // The whole is one storage on each of two nodes, on the account of the first device there.
    for (size_t device = 0; device < 4; ++device) {
      const std::string label = "{device=\"" + std::to_string(device) + "\"}";
      EXPECT_EQ(samples.at("dtorch_device_memory_bytes" + label), stats.bytes_in_use_per_device[device]);
      EXPECT_GE(samples.at("dtorch_device_memory_peak_bytes" + label), device % 2 == 0 ? 1 << 20 : 1 << 18);
    }
  });
}

TEST(Metrics, APortThatIsTakenOrAnAddressThatIsNoneEndsTheJobAtItsStart) {
  const MetricsServer other("127.0.0.1", 0, [] { return ""; });
  const auto never = [](Client&) { FAIL() << "the program ran"; };
  testing::internal::CaptureStderr();
  in_job({"--metrics-port", std::to_string(other.port())}, 1, never);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("can't listen at 127.0.0.1"), std::string::npos);
  testing::internal::CaptureStderr();
  in_job({"--metrics-port=0", "--metrics-address=localhost"}, 1, never);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--metrics-address is 'localhost'; it must be an IP address"),
            std::string::npos);
}

TEST(MetricsServer, AnswersOthersWithWhatIsWrong) {
  std::atomic<bool> fails{false};
  const MetricsServer server("127.0.0.1", 0, [&] {
    if (fails) throw RuntimeFault("nothing is known");
    return std::string("up 1\n");
  });
  EXPECT_NE(get(server.port(), "/metrics").find("\r\n\r\nup 1\n"), std::string::npos);
  EXPECT_TRUE(get(server.port(), "/").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(answer_to(server.port(), "DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
  fails = true;
  const std::string answer = get(server.port(), "/metrics");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 500 ")) << answer;
  EXPECT_NE(answer.find("nothing is known"), std::string::npos) << answer;
  fails = false;
  EXPECT_EQ(answer_to(server.port(), "\x01\x02 what\r\n\r\n"), "") << "that was no request";
  EXPECT_NE(get(server.port(), "/metrics").find("up 1"), std::string::npos) << "and others are answered after it";
}

}  // namespace
}  // namespace dtorch
