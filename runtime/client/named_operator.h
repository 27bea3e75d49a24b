// An operator that the client itself calls, found by its name in the registry. Private to this room and
// runtime/autograd.
#pragma once
#include <atomic>
#include <string>

#include "ops/def/operator_def.h"

namespace dtorch {

class NamedOperator {
 public:
  explicit constexpr NamedOperator(const char* name) : name_(name) {}
  // Throws InternalError when no such operator is registered.
  const OperatorDef& get() {
    const OperatorDef* def = def_.load(std::memory_order_acquire);
    if (!def) {
      def = OperatorRegistry::global().find(name_);
      DTORCH_CHECK(def, std::string("operator '") + name_ + "' isn't registered");
      def_.store(def, std::memory_order_release);
    }
    return *def;
  }

 private:
  const char* const name_;
  std::atomic<const OperatorDef*> def_{nullptr};
};

}  // namespace dtorch
