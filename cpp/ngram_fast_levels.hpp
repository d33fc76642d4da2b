// Sentences scored an order at a time over the layout "fast", for models of order 2 and more whose file
// is verified.
//
// An n-gram is looked for among the continuations of the context that ends one word before it, which is an
// n-gram of the order below: so all words of many sentences can be asked for bigrams, then those behind a
// bigram for trigrams, and so on, each order in three turns through its list, so that memory has its time:
// - ask: where the context's index may have the word; that line is fetched;
// - look: four slots of the index at once; the row they lead to is fetched;
// - answer: where the row is the word's, its n-gram answers, and is the context of the word behind; where
// there
//   is none, the context's weight is added to what a shorter n-gram answered (the equation of
//   ngram_state.hpp).
// How long the n-gram is that answers nobody can foresee, a processor neither: no turn branches on it.
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

#include "ngram_fast.hpp"
#include "ngram_lanes.hpp"
#include "ngram_state.hpp"

namespace chainrule {

class FastLevels {
  public:
    // Whether pieces are what is scored here: words that are read as they are predicted, and nothing before.
    static bool can_score(std::span<const Piece> pieces) {
        return std::ranges::none_of(
            pieces, [](const Piece& piece) { return piece.inputs || (piece.before_size && !piece.begins); });
    }

    // `begin` is the state at the beginning of a line; words of pieces are below the vocabulary's size.
    static void score(const FastLayout& layout, const State& begin, std::span<const Piece> pieces) {
        thread_local const auto levels = std::make_unique<FastLevels>();  // taken once, not for each sentence
        levels->layout_ = &layout;
        levels->order_ = static_cast<std::uint32_t>(layout.order());
        levels->holds_suffixes_ = layout.file().facts().model.holds_suffixes;
        levels->used_ = levels->part_count_ = 0;
        levels->score(begin, pieces);
    }

  private:
    void score(const State& begin, std::span<const Piece> pieces) {
        for (const Piece& piece : pieces) {
            if (piece.size >= kPlaces - used_) answer_all();
            const State* before = piece.begins ? &begin : &nothing_;
            for (std::uint32_t from = 0; from < piece.size;) {
                const auto size = std::min(piece.size - from, static_cast<std::uint32_t>(kPlaces - 1));
                put(piece, from, size, before);
                from += size;
                if (from == piece.size) break;
                answer_all();  // the rest goes on from what was read
                carried_.copy_from(last_);
                before = &carried_;
            }
        }
        answer_all();
    }

    static constexpr std::size_t kPlaces = 768;  // words that are worked on at once, and one before each part
    static constexpr std::size_t kParts = kPlaces / 2;

    // Words that follow on each other, or the first of them: where they stand, and where they go.
    struct Part {
        const Piece* piece;
        std::uint32_t from, place, size;
        const State* before;  // what was read before them
    };
    // A word that is asked for behind a context of the order below.
    struct Asked {
        const std::uint16_t* slots;
        std::uint32_t place, row;  // row: or one of FastHash's
    };
    struct Context {
        Children children;
        float log_backoff;
    };

    void put(const Piece& piece, std::uint32_t from, std::uint32_t size, const State* before) {
        parts_[part_count_++] = {&piece, from, static_cast<std::uint32_t>(used_), size, before};
        words_[used_] = lengths_[used_] = 0;
        log_probs_[used_] = 0;
        is_before_[used_++] = true;
        for (std::uint32_t i = 0; i < size; ++i, ++used_) {
            is_before_[used_] = false;
            words_[used_] = static_cast<std::uint32_t>(piece.targets[from + i]);
        }
    }

    void answer_all() {
        if (!part_count_) return;
        is_before_[used_] = true;
        words_[used_] = lengths_[used_] = 0;
        log_probs_[used_] = 0;
        // A model may hold an n-gram and not its suffix: what was read before a part may be longer than what
        // is stored of the words since.
        std::uint32_t longest_before = 0;
        for (std::size_t i = 0; i < part_count_; ++i)
            longest_before =
                std::max(longest_before, static_cast<std::uint32_t>(std::bit_width(parts_[i].before->found)));
        unigrams();
        for (std::uint32_t n = 2; n <= order_ && (stored_count_ || n <= longest_before + 1); ++n) {
            ask(n);
            if (!layout_->size(n)) {  // nothing is stored: all contexts are passed by
                for (std::size_t k = 0; k < asked_count_; ++k)
                    log_probs_[asked_[k].place] += contexts_[asked_[k].place - 1].log_backoff;
                break;
            }
            look(n);
            if (n < order_) {
                answer<FastRow>(n, [&](std::uint32_t row) { return layout_->row(n, row); });
            } else {
                answer<FastTopRow>(n, [&](std::uint32_t row) { return layout_->top_row(row); });
            }
        }
        for (std::uint32_t i = 0; i < part_count_; ++i) {
            const Part& part = parts_[i];
            std::copy_n(&log_probs_[part.place + 1], part.size, part.piece->log_probs + part.from);
            if (part.piece->lengths)
                std::copy_n(&lengths_[part.place + 1], part.size, part.piece->lengths + part.from);
        }
        used_ = part_count_ = 0;
    }

    void unigrams() {
        stored_count_ = 0;
        last_.found = 0;
        for (std::size_t i = 0; i < used_; ++i) {
            if (is_before_[i]) continue;
            const FastRow* const row = layout_->row(1, words_[i]);
            log_probs_[i] = row->log_prob;
            lengths_[i] = 1;
            next_[i] = context_of(row);
            stored_[stored_count_++] = static_cast<std::uint32_t>(i);
        }
        go_on(1);
    }

    static Context context_of(const FastRow* row) { return {{row[0].first, row[1].first}, row->log_backoff}; }

    // From order m to the one above: what was stored is what is looked behind, and so is what was read before
    // the first words of the parts. What is behind the last word is kept for a part that goes on from there.
    void go_on(std::uint32_t m) {
        std::swap(contexts_, next_);
        const std::size_t last = used_ - 1;
        if (lengths_[last] == m) {
            last_.found |= 1U << (m - 1);
            last_.children[m - 1] = contexts_[last].children;
            last_.log_backoff[m - 1] = contexts_[last].log_backoff;
        }
        for (std::size_t i = 0; i < part_count_; ++i) {
            const State& before = *parts_[i].before;
            if (!(before.found >> (m - 1) & 1)) continue;
            contexts_[parts_[i].place] = {before.children[m - 1], before.log_backoff[m - 1]};
            stored_[stored_count_++] = parts_[i].place;
        }
    }

    void ask(std::uint32_t n) {
        std::size_t count = 0;
        for (std::size_t k = 0; k < stored_count_; ++k) {
            const std::uint32_t place = stored_[k] + 1;
            const Children in = contexts_[stored_[k]].children;
            const std::uint16_t* const slots =
                layout_->slots_of(n, in) + FastHash::home(in.size(), FastHash::mix(words_[place]));
            // Where the n-gram without its first word is not stored, this one is not: its context is passed
            // by.
            const bool may_be = !holds_suffixes_ || lengths_[place] + 1U == n;
            prefetch(may_be ? slots : layout_->slots_of(n, {}));
            asked_[count].slots = slots;
            asked_[count].place = place;
            log_probs_[place] += may_be ? 0.0F : contexts_[stored_[k]].log_backoff;
            count += !is_before_[place] && may_be;
        }
        asked_count_ = count;
    }

    void look(std::uint32_t n) {
        for (std::size_t k = 0; k < asked_count_; ++k) {
            Asked& asked = asked_[k];
            const Children in = contexts_[asked.place - 1].children;
            const std::uint32_t row =
                FastHash::row_in(asked.slots, in.size(), FastHash::mix(words_[asked.place]));
            asked.row = row;
            const std::uint32_t at = row < FastHash::kUnsure ? in.from + row : 0;
            if (n < order_) {
                prefetch(layout_->row(n, at));
                prefetch(layout_->row(n, at) + 1);
            } else {
                prefetch(layout_->top_row(at));
            }
        }
    }

    template <class Row, class RowOf>
    void answer(std::uint32_t n, const RowOf& row_of) {
        std::size_t count = 0;
        for (std::size_t k = 0; k < asked_count_; ++k) {
            const auto [slots, place, seen] = asked_[k];
            const Context before = contexts_[place - 1];
            std::uint32_t row = seen < FastHash::kUnsure ? before.children.from + seen : 0;
            const Row* at = row_of(row);
            bool is_there = seen < FastHash::kUnsure && at->word == words_[place];
            if (!is_there && seen != FastHash::kNone) [[unlikely]] {
                const Found found = layout_->find(n, before.children, words_[place]);
                is_there = found.is_there;
                at = row_of(found.row);
            }
            const double passed = log_probs_[place] + before.log_backoff;
            log_probs_[place] = is_there ? at->log_prob : passed;
            lengths_[place] = is_there ? static_cast<std::uint8_t>(n) : lengths_[place];
            if constexpr (std::is_same_v<Row, FastRow>) next_[place] = context_of(at);
            stored_[count] = place;
            count += is_there;
        }
        stored_count_ = count;
        if (n < order_) go_on(n);
    }

    const FastLayout* layout_ = nullptr;
    std::uint32_t order_ = 0;
    bool holds_suffixes_ = false;
    State nothing_, carried_, last_;  // last_: after the last word
    std::size_t used_ = 0, part_count_ = 0, stored_count_ = 0, asked_count_ = 0;
    std::array<Part, kParts> parts_;
    std::array<bool, kPlaces + 1> is_before_;
    std::array<std::uint32_t, kPlaces + 1> words_;
    std::array<double, kPlaces + 1> log_probs_;
    std::array<std::uint8_t, kPlaces + 1> lengths_;
    std::array<Context, kPlaces + 1> of_odd_, of_even_;
    Context *contexts_ = of_odd_.data(),
            *next_ = of_even_.data();                // by place; of this order, of the one above
    std::array<std::uint32_t, kPlaces + 1> stored_;  // places that have one of this order
    std::array<Asked, kPlaces + 1> asked_;
};

}  // namespace chainrule
