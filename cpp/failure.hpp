// The one exception of this core; bindings.cpp makes it a ChainruleError of Python.
#pragma once

#include <stdexcept>
#include <string>

namespace chainrule {

class Failure : public std::runtime_error {
  public:
    explicit Failure(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace chainrule
