#include "ngram/partition/context_runs.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace chainrule {

namespace {

// A run starts with one byte: the leading words shared with the previous context, and the number of n-grams,
// or `many` for a larger number that follows.
struct HeadByte {
    explicit HeadByte(std::uint32_t order) : size_bits(order <= 16 ? 4 : 3), many((1U << size_bits) - 1) {}
    std::uint32_t size_bits, many;
};

// A back-off weight is one byte if it is one of the first values of the record. Most contexts are followed by
// few words that occur once, so there are few different weights.
constexpr std::uint8_t kNewValue = 255;
constexpr std::size_t kMaxCodes = 255;

}  // namespace

RunWriter::RunWriter(std::uint32_t order) : order_(order), context_(order - 1) {}

void RunWriter::begin_run(std::span<const std::uint32_t> context, float log_backoff, std::uint32_t size) {
    const HeadByte head(order_);
    std::uint32_t shared = 0;
    if (runs_ > 0)
        while (shared + 1 < context.size() && context[shared] == context_[shared]) ++shared;
    words_.number(static_cast<std::uint8_t>(shared << head.size_bits | std::min(size, head.many)));
    if (size >= head.many) words_.varint(size);
    words_.varint(context[shared] - (runs_ > 0 ? context_[shared] : 0));
    for (std::size_t k = shared + 1; k < context.size(); ++k) words_.varint(context[k]);
    std::ranges::copy(context, context_.begin());
    last_word_ = 0;
    ++runs_;
    const auto bits = std::bit_cast<std::uint32_t>(log_backoff);
    if (const auto code = backoff_codes_.find(bits); code != backoff_codes_.end()) {
        backoffs_.number(code->second);
        return;
    }
    if (backoff_codes_.size() < kMaxCodes)
        backoff_codes_.emplace(bits, static_cast<std::uint8_t>(backoff_codes_.size()));
    backoffs_.number(kNewValue);
    backoffs_.number(log_backoff);
}

void RunWriter::add(std::uint32_t word, float log_prob) {
    words_.varint(word - std::exchange(last_word_, word));
    log_probs_.number(log_prob);
}

void RunWriter::append_to(ByteWriter& out) const {
    out.varint(runs_);
    for (const ByteWriter* stream : {&words_, &backoffs_, &log_probs_}) {
        out.varint(stream->size());
        out.raw(stream->view());
    }
}

RunReader::RunReader(std::uint32_t order, ByteReader& in) : order_(order), context_(order - 1) {
    runs_ = in.varint();
    for (ByteReader* stream : {&words_, &backoffs_, &log_probs_}) *stream = ByteReader(in.raw(in.varint()));
    next();
}

void RunReader::next() {
    has_run_ = runs_ > 0;
    if (!has_run_) return;
    --runs_;
    const HeadByte head(order_);
    const std::uint8_t byte = words_.byte();
    const std::uint32_t shared = byte >> head.size_bits;
    size_ = byte & head.many;
    if (size_ == head.many) size_ = words_.varint32();
    if (shared >= context_.size()) ByteReader::fail();
    context_[shared] += words_.varint32();
    for (std::size_t k = shared + 1; k < context_.size(); ++k) context_[k] = words_.varint32();
    last_word_ = 0;
    const std::uint8_t code = backoffs_.byte();
    if (code == kNewValue) {
        log_backoff_ = backoffs_.number<float>();
        if (backoff_table_.size() < kMaxCodes) backoff_table_.push_back(log_backoff_);
    } else {
        if (code >= backoff_table_.size()) ByteReader::fail();
        log_backoff_ = backoff_table_[code];
    }
}

}  // namespace chainrule
