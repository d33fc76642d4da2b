#include "vectors/pair_merge.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kFewest = 64, kMost = 1 << 15;  // entries of a run in memory

}  // namespace

bool PairRun::fill(std::size_t size) {
    if (at_ < entries_.size()) return true;
    if (!in_ || first_ == last_) return false;
    block_.resize(std::min<std::uint64_t>(size, last_ - first_));
    in_->clear();
    in_->seekg(static_cast<std::streamoff>(first_ * sizeof(Entry)));
    in_->read(reinterpret_cast<char*>(block_.data()),
              static_cast<std::streamsize>(block_.size() * sizeof(Entry)));
    if (!*in_) throw Failure("a temporary file of co-occurrence counts cannot be read back");
    first_ += block_.size();
    entries_ = block_;
    at_ = 0;
    return true;
}

PairMerge::PairMerge(std::vector<PairRun> runs, std::uint64_t bytes) : runs_(std::move(runs)) {
    if (runs_.empty()) return;
    size_ = std::clamp<std::size_t>(bytes / runs_.size() / sizeof(Entry), kFewest, kMost);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        of_ += runs_[i].size();
        if (runs_[i].fill(size_)) heap_.push_back({runs_[i].front().place, i});
    }
    std::make_heap(heap_.begin(), heap_.end());
}

bool PairMerge::next(Entry& found) {
    if (heap_.empty()) return false;
    found = take();
    while (!heap_.empty() && heap_.front().place == found.place) found.amount += take().amount;
    return true;
}

// The least entry; the top sinks to its new place instead of leaving and coming back.
Entry PairMerge::take() {
    const std::size_t i = heap_.front().run;
    PairRun& run = runs_[i];
    const Entry found = run.front();
    run.step();
    ++done_;
    if (!run.fill(size_)) {
        std::pop_heap(heap_.begin(), heap_.end());
        heap_.pop_back();
        return found;
    }
    const Head head{run.front().place, i};
    std::size_t at = 0;
    while (true) {
        std::size_t child = 2 * at + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1].place < heap_[child].place) ++child;
        if (head.place <= heap_[child].place) break;
        heap_[at] = heap_[child];
        at = child;
    }
    heap_[at] = head;
    return found;
}

}  // namespace chainrule
