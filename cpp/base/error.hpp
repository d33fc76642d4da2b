// The exceptions of the C++ code. bindings/module.cpp translates each to its Python class.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace chainrule {

// Base class of all exceptions thrown on purpose; ChainruleError in Python.
class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// An argument has an invalid value, or arguments do not belong together.
class ArgumentError : public Error {
    using Error::Error;
};

// A file other than a model file cannot be read or written.
class IoError : public Error {
    using Error::Error;
};

class OutOfMemory : public Error {
    using Error::Error;
};

// A model file is missing, damaged or of another format; ModelFileError in Python.
class ModelFileError : public Error {
    using Error::Error;
};

// The system refused to write a file; `error` is its errno. OSError in Python.
class WriteError : public IoError {
  public:
    WriteError(std::string path, int error, const std::string& reason)
        : IoError(path + " cannot be written: " + reason), path(std::move(path)), error(error) {}

    const std::string path;
    const int error;
};

}  // namespace chainrule
