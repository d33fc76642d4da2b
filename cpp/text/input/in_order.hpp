// Passes on the results of several threads in the order of their numbers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace chainrule {

// One of the threads that add items passes on those that are next, while the others continue with their work.
// A thread waits only if `capacity` items are ahead of the next one.
template <class Item>
class InOrder {
  public:
    InOrder(std::function<void(const Item&)> receive, std::size_t capacity)
        : receive_(std::move(receive)), capacity_(capacity) {}

    // Each number from 0 on is added once. Rethrows what the receiver throws.
    void add(std::size_t number, Item item) {
        std::unique_lock lock(mutex_);
        is_changed_.wait(lock, [&] { return is_stopped_ || number == next_ || waiting_.size() < capacity_; });
        waiting_.emplace(number, std::move(item));
        if (is_receiving_) return;
        is_receiving_ = true;
        while (!is_stopped_ && !waiting_.empty() && waiting_.begin()->first == next_) {
            const Item first = std::move(waiting_.begin()->second);
            waiting_.erase(waiting_.begin());
            lock.unlock();
            receive_(first);  // if it throws, nothing more is received
            lock.lock();
            ++next_;
            is_changed_.notify_all();
        }
        is_receiving_ = false;
    }

    // Ends all waiting: a number will not be added.
    void stop() {
        const std::lock_guard lock(mutex_);
        is_stopped_ = true;
        is_changed_.notify_all();
    }

  private:
    const std::function<void(const Item&)> receive_;
    const std::size_t capacity_;
    std::mutex mutex_;
    std::condition_variable is_changed_;
    std::map<std::size_t, Item> waiting_;
    std::size_t next_ = 0;
    bool is_receiving_ = false, is_stopped_ = false;
};

}  // namespace chainrule
