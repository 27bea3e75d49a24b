// The setup of fake accelerators in these tests: failures say what their exceptions say.
#pragma once
#include <exception>
#include <string>

#include "runtime/accelerator/fake/fake_library.h"

namespace dtorch::fake {

inline Setup setup_for_tests() {
  Setup setup;
  setup.error_text = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
  };
  return setup;
}

}  // namespace dtorch::fake
