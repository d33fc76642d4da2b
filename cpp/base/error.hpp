// The exceptions of this core; bindings.cpp makes a Failure a ChainruleError of Python, a WriteFailure an
// OSError.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace chainrule {

class Failure : public std::runtime_error {
  public:
    explicit Failure(const std::string& what) : std::runtime_error(what) {}
};

// The system refused to write a file; `error` is its errno.
class WriteFailure : public Failure {
  public:
    WriteFailure(std::string path, int error, const std::string& reason)
        : Failure(path + " cannot be written: " + reason), path(std::move(path)), error(error) {}

    const std::string path;
    const int error;
};

}  // namespace chainrule
