// Level-synchronous scoring with the hashed layout: many words are scored one order at a time. For models of
// order 2 and more whose file is verified.
//
// An n-gram is looked up among the extensions of its context, which is an n-gram of the order below. So all
// words of many sentences are looked up as bigrams, then those whose bigram was found as trigrams, and so on.
// Each order runs through its list in three pipelined steps, so that memory latency is hidden:
// - locate: compute the index position of the word and prefetch it;
// - compare: match four index slots at once and prefetch the row;
// - answer: if the row matches, the n-gram determines p and becomes the context of the next word; if not, the
//   back-off weight of the context is added to the score of the shorter n-gram (equation in state.hpp).
// Which n-gram length matches is unpredictable, so no step branches on it; results are selected by bit masks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "ngram/format/hashed_layout.hpp"
#include "ngram/query/interleaved_scorer.hpp"
#include "ngram/query/state.hpp"

namespace chainrule {

class LevelScorer {
  public:
    // Whether these segments can be scored here: words are read as predicted, with no other left context.
    static bool can_score(std::span<const Piece> pieces) {
        return std::ranges::none_of(
            pieces, [](const Piece& piece) { return piece.inputs || (piece.before_size && !piece.begins); });
    }

    // `begin` is the state at the beginning of a line; word ids are below the vocabulary size.
    static void score(const HashedLayout& layout, const State& begin, std::span<const Piece> pieces) {
        thread_local const auto levels = std::make_unique<LevelScorer>();  // allocated once per thread
        levels->layout_ = &layout;
        levels->order_ = static_cast<std::uint32_t>(layout.order());
        levels->holds_suffixes_ = layout.file().metadata().model.holds_suffixes;
        levels->used_ = levels->part_count_ = 0;
        levels->score(begin, pieces);
    }

  private:
    void score(const State& begin, std::span<const Piece> pieces) {
        for (const Piece& piece : pieces) {
            if (piece.size >= kMaxPositions - used_) answer_all();
            const State* before = piece.begins ? &begin : &nothing_;
            for (std::uint32_t from = 0; from < piece.size;) {
                const auto size = std::min(piece.size - from, static_cast<std::uint32_t>(kMaxPositions - 1));
                put(piece, from, size, before);
                from += size;
                if (from == piece.size) break;
                answer_all();  // later words continue from the state reached
                carried_.copy_from(last_);
                before = &carried_;
            }
        }
        answer_all();
    }

    static constexpr std::size_t kMaxPositions = 768;  // words processed at once, plus one before each part
    static constexpr std::size_t kParts = kMaxPositions / 2;
    static constexpr std::size_t kStretch = 32;  // words per step

    // Consecutive words of a segment and where they are placed.
    struct Part {
        const Piece* piece;
        std::uint32_t from, position, size;
        const State* before;  // state before the first word
    };
    // Extensions and back-off weight of an n-gram used as a context.
    struct Context {
        std::uint32_t from, size;
        float log_backoff;

        Children children() const { return {from, from + size}; }
    };
    // A pending lookup after a context of the order below.
    struct PendingQuery {
        const std::uint16_t* slots;
        std::uint32_t position, row;
        bool is_seen, is_unsure;  // present in the index; the four slots are not conclusive
    };

    void put(const Piece& piece, std::uint32_t from, std::uint32_t size, const State* before) {
        parts_[part_count_++] = {&piece, from, static_cast<std::uint32_t>(used_), size, before};
        put_none();
        for (std::uint32_t i = 0; i < size; ++i)
            words_[used_ + i] = static_cast<std::uint32_t>(piece.targets[from + i]);
        used_ += size;
    }

    // A separator that is never looked up.
    void put_none() { words_[used_++] = 0; }

    void answer_all() {
        if (!part_count_) return;
        put_none();
        // A model may store an n-gram without its suffix, so the left context of a part may be longer
        // than what is stored of the words since.
        std::uint32_t longest_before = 0;
        for (std::size_t i = 0; i < part_count_; ++i)
            longest_before = std::max(longest_before,
                                      static_cast<std::uint32_t>(std::bit_width(parts_[i].before->stored)));
        unigrams();
        for (std::uint32_t n = 2; n <= order_ && (stored_count_ || n <= longest_before + 1); ++n) {
            if (!layout_->size(n)) {
                pass_all(n);
                break;
            }
            if (n < order_) {
                look_up_all(n, layout_->row(n, 0));
                go_on(n);
            } else {
                look_up_all(n, layout_->top_row(0));
            }
        }
        for (std::uint32_t i = 0; i < part_count_; ++i) {
            const Part& part = parts_[i];
            std::copy_n(&log_probs_[part.position + 1], part.size, part.piece->log_probs + part.from);
            if (part.piece->lengths)
                std::copy_n(&lengths_[part.position + 1], part.size, part.piece->lengths + part.from);
        }
        used_ = part_count_ = 0;
    }

    void unigrams() {
        const HashedRow* const rows = layout_->row(1, 0);
        for (std::size_t i = 0; i < used_; ++i) {
            const HashedRow* const row = rows + words_[i];
            log_probs_[i] = row->log_prob;
            lengths_[i] = 1;
            next_[i] = context_of(row);
            stored_[i] = static_cast<std::uint32_t>(i);
        }
        for (std::size_t i = 0; i < part_count_; ++i) lengths_[parts_[i].position] = 0;
        lengths_[used_ - 1] = 0;
        stored_count_ = used_ - 1;
        last_.stored = 0;
        go_on(1);
    }

    static Context context_of(const HashedRow* row) {
        return {row[0].first, Children{row[0].first, row[1].first}.size(), row->log_backoff};
    }
    static Context context_of(const HashedTopRow*) { return {}; }

    // Moves from order m to m + 1: matched n-grams and the left contexts of the parts become the
    // contexts. The context after the last word is kept for a part that continues there.
    void go_on(std::uint32_t m) {
        std::swap(contexts_, next_);
        const std::size_t last = used_ - 2;
        if (lengths_[last] == m) {
            last_.stored |= 1U << (m - 1);
            last_.children[m - 1] = contexts_[last].children();
            last_.log_backoff[m - 1] = contexts_[last].log_backoff;
        }
        for (std::size_t i = 0; i < part_count_; ++i) {
            const State& before = *parts_[i].before;
            const Children children = before.children[m - 1];
            const bool is_present = before.stored >> (m - 1) & 1;
            contexts_[parts_[i].position] =
                is_present ? Context{children.from, children.size(), before.log_backoff[m - 1]} : Context{};
            if (is_present && m > 1)
                stored_[stored_count_++] = parts_[i].position;  // at order 1 all words are stored
        }
    }

    // No n-gram of this order is stored: back off from all contexts.
    void pass_all(std::uint32_t n) {
        query_count_ = 0;
        locate(n, 0, stored_count_);
        for (std::size_t k = 0; k < query_count_; ++k)
            log_probs_[queries_[k].position] += contexts_[queries_[k].position - 1].log_backoff;
    }

    // Each step runs one stretch behind the previous one.
    template <class Row>
    void look_up_all(std::uint32_t n, const Row* rows) {
        const std::size_t all = stored_count_;
        std::size_t compared = 0, answered = 0;
        query_count_ = stored_count_ = 0;
        for (std::size_t k = 0; k < all || answered < query_count_; k += kStretch) {
            const std::size_t compare_to = query_count_, answer_to = compared;
            if (k < all) locate(n, k, std::min(k + kStretch, all));
            compare(rows, compared, compare_to);
            answer(n, rows, answered, answer_to);
            compared = compare_to;
            answered = answer_to;
        }
    }

    void locate(std::uint32_t n, std::size_t from, std::size_t to) {
        const std::uint16_t* const index = layout_->slots_of(n, {});
        const Context* const contexts = contexts_;
        // If the suffix of an n-gram is not stored, the n-gram is not either: back off from its
        // context, and from one without extensions.
        const std::uint32_t shortest = holds_suffixes_ ? n - 1 : 1;
        std::size_t count = query_count_;
        for (std::size_t k = from; k < to; ++k) {
            const std::uint32_t position = stored_[k] + 1;
            const Context in = contexts[position - 1];
            const std::uint64_t is_queried = (lengths_[position] >= shortest) & (in.size != 0);
            const std::uint64_t home = ChildHash::home(in.size, ChildHash::mix(words_[position]));
            const std::uint16_t* const slots =
                index + ((2 * std::uint64_t{in.from} + home) & (0 - is_queried));
            prefetch(slots);
            queries_[count].slots = slots;
            queries_[count].position = position;
            log_probs_[position] += select(!is_queried, in.log_backoff, 0);
            count += is_queried;
        }
        query_count_ = count;
    }

    // Branch-free select: x if `condition`, else y.
    static double select(bool condition, double x, double y) {
        const auto of_x = std::bit_cast<std::uint64_t>(x), of_y = std::bit_cast<std::uint64_t>(y);
        return std::bit_cast<double>(of_y ^ ((of_x ^ of_y) & (0 - std::uint64_t{condition})));
    }

    template <class Row>
    void compare(const Row* rows, std::size_t from, std::size_t to) {
        const Context* const contexts = contexts_;
        for (std::size_t k = from; k < to; ++k) {
            PendingQuery& pending = queries_[k];
            const Context in = contexts[pending.position - 1];
            ChildHash::Probe probe{0, false, true};
            if (in.size < kMinSorted) [[likely]]
                probe =
                    ChildHash::probe_slots(pending.slots, in.size, ChildHash::mix(words_[pending.position]));
            pending.is_seen = probe.is_present;
            pending.is_unsure = probe.is_unsure;
            pending.row = (in.from + probe.row) & (0 - std::uint32_t{probe.is_present});
            prefetch(rows + pending.row);
            if constexpr (std::is_same_v<Row, HashedRow>) prefetch(rows + pending.row + 1);
        }
    }

    template <class Row>
    void answer(std::uint32_t n, const Row* rows, std::size_t from, std::size_t to) {
        const Context* const contexts = contexts_;
        Context* const next = next_;
        std::size_t count = stored_count_;
        for (std::size_t k = from; k < to; ++k) {
            const PendingQuery pending = queries_[k];
            const std::uint32_t position = pending.position, word = words_[position];
            const Row* at = rows + pending.row;
            bool is_present = pending.is_seen & (at->word == word);
            if (pending.is_unsure | (pending.is_seen & !is_present)) [[unlikely]] {
                const Lookup lookup = layout_->find(n, contexts[position - 1].children(), word);
                is_present = lookup.is_present;
                at = rows + lookup.row;
            }
            const double passed = log_probs_[position] + contexts[position - 1].log_backoff;
            log_probs_[position] = select(is_present, at->log_prob, passed);
            lengths_[position] ^= static_cast<std::uint8_t>((lengths_[position] ^ n) & (0U - is_present));
            next[position] = context_of(at);
            stored_[count] = position;
            count += is_present;
        }
        stored_count_ = count;
    }

    const HashedLayout* layout_ = nullptr;
    std::uint32_t order_ = 0;
    bool holds_suffixes_ = false;
    State nothing_, carried_, last_;  // last_: after the last word
    std::size_t used_ = 0, part_count_ = 0, stored_count_ = 0, query_count_ = 0;
    std::array<Part, kParts> parts_;
    std::array<std::uint32_t, kMaxPositions + 1> words_;
    std::array<double, kMaxPositions + 1> log_probs_;
    std::array<std::uint8_t, kMaxPositions + 1> lengths_;
    std::array<Context, kMaxPositions + 1> of_odd_, of_even_;
    Context* contexts_ = of_odd_.data();                   // by position; contexts of the order below …
    Context* next_ = of_even_.data();                      // … and of the current order
    std::array<std::uint32_t, kMaxPositions + 1> stored_;  // positions with a stored context of this order
    std::array<PendingQuery, kMaxPositions + 1> queries_;
};

}  // namespace chainrule
