// Something that several threads of Python may hold: one call at a time, others run meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>

namespace chainrule {

template <class T>
class OneAtATime {
  public:
    explicit OneAtATime(std::unique_ptr<T> kept) : kept_(std::move(kept)) {}

    template <class Use>
    auto use(Use use) {
        const nanobind::gil_scoped_release free;
        const std::lock_guard lock(mutex_);
        return use(*kept_);
    }

  private:
    std::unique_ptr<T> kept_;
    std::mutex mutex_;
};

}  // namespace chainrule
