#include "tests/comm/mpi_environment.h"

#include <gtest/gtest.h>

#include "runtime/comm/launcher.h"

namespace dtorch {
namespace {

class MpiEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    if (launched_with_mpi()) session_ = MpiSession::start(nullptr, nullptr);
  }
  void TearDown() override {
    if (!session_) return;
    const bool failed = testing::UnitTest::GetInstance()->Failed();
    session_->finish(!failed, failed ? 1 : 0);
    session_.reset();
  }
  MpiSession& session() { return *session_; }

 private:
  std::unique_ptr<MpiSession> session_;
};

// Owned by GoogleTest.
MpiEnvironment* const environment = static_cast<MpiEnvironment*>(testing::AddGlobalTestEnvironment(new MpiEnvironment));

}  // namespace

MpiSession& mpi_session() { return environment->session(); }

}  // namespace dtorch
