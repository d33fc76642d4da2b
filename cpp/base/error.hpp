// The exceptions of the C++ code. bindings/module.cpp translates each to its Python class.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace chainrule {

class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// The system refused to write a file; `error` is its errno.
class WriteError : public Error {
  public:
    WriteError(std::string path, int error, const std::string& reason)
        : Error(path + " cannot be written: " + reason), path(std::move(path)), error(error) {}

    const std::string path;
    const int error;
};

}  // namespace chainrule
