// Answers GET /metrics over HTTP with a text, for Prometheus and its kin. A thread of its own, which also calls for the
// text; several requests at a time are answered one after the other.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace dtorch {

class MetricsServer {
 public:
  using Text = std::function<std::string()>;
  // Listens at once. address: numeric; port 0: any that is free. `text` outlives this; what it throws is answered as
  // status 500. Throws UserError when it can't listen there.
  MetricsServer(const std::string& address, uint16_t port, Text text);
  // Drops requests that are under way.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  uint16_t port() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace dtorch
