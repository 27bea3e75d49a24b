// A shared library that is loaded when it is asked for, and its functions. Thread-safe after its constructor.
#pragma once
#include <string>
#include <vector>

namespace dtorch {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // Loads the first of these (names or paths) that can be. It stays loaded for ever: what it has started may outlive
  // this object.
  explicit SharedLibrary(const std::vector<std::string>& names);
  explicit operator bool() const { return handle_ != nullptr; }
  // Why it couldn't be loaded: the linker's words about the last one tried.
  const std::string& error() const { return error_; }
  // Null when the library hasn't it.
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string error_ = "not looked for";
};

}  // namespace dtorch
