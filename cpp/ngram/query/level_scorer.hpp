// Sentences scored an order at a time over the layout "fast", for models of order 2 and more whose file
// is verified.
//
// An n-gram is looked for among the continuations of the context that ends one word before it, which is an
// n-gram of the order below: so all words of many sentences can be asked for bigrams, then those behind a
// bigram for trigrams, and so on. Each order goes through its list in three steps, a stretch of the list each
// in turn, so that memory has its time:
// - ask: where the context's index may have the word; that line is fetched;
// - look: four slots of the index at once; the row they lead to is fetched;
// - answer: where the row is the word's, its n-gram answers, and is the context of the word behind; where
//   there is none, the context's weight is added to what a shorter n-gram answered (the equation of
//   ngram/query/state.hpp).
// How long the n-gram is that answers nobody can foresee, a processor neither: so no step branches on it, and
// what holds for one word and not for another is a mask of bits.
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
    static constexpr std::size_t kStretch = 32;  // words of a step

    // Words that follow on each other, or the first of them: where they stand, and where they go.
    struct Part {
        const Piece* piece;
        std::uint32_t from, place, size;
        const State* before;  // what was read before them
    };
    // The continuations of an n-gram, as it is a context.
    struct Context {
        std::uint32_t from, size;
        float log_backoff;

        Children children() const { return {from, from + size}; }
    };
    // A word that is asked for behind a context of the order below.
    struct Asked {
        const std::uint16_t* slots;
        std::uint32_t place, row;
        bool is_seen, is_unsure;  // in the index; the four slots do not say
    };

    void put(const Piece& piece, std::uint32_t from, std::uint32_t size, const State* before) {
        parts_[part_count_++] = {&piece, from, static_cast<std::uint32_t>(used_), size, before};
        put_none();
        for (std::uint32_t i = 0; i < size; ++i)
            words_[used_ + i] = static_cast<std::uint32_t>(piece.targets[from + i]);
        used_ += size;
    }

    // A place that is never asked for: no n-gram answers there.
    void put_none() { words_[used_++] = 0; }

    void answer_all() {
        if (!part_count_) return;
        put_none();
        // A model may hold an n-gram and not its suffix: what was read before a part may be longer than what
        // is stored of the words since.
        std::uint32_t longest_before = 0;
        for (std::size_t i = 0; i < part_count_; ++i)
            longest_before =
                std::max(longest_before, static_cast<std::uint32_t>(std::bit_width(parts_[i].before->found)));
        unigrams();
        for (std::uint32_t n = 2; n <= order_ && (stored_count_ || n <= longest_before + 1); ++n) {
            if (!layout_->size(n)) {
                pass_all(n);
                break;
            }
            if (n < order_) {
                ask_all(n, layout_->row(n, 0));
                go_on(n);
            } else {
                ask_all(n, layout_->top_row(0));
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
        const FastRow* const rows = layout_->row(1, 0);
        for (std::size_t i = 0; i < used_; ++i) {
            const FastRow* const row = rows + words_[i];
            log_probs_[i] = row->log_prob;
            lengths_[i] = 1;
            next_[i] = context_of(row);
            stored_[i] = static_cast<std::uint32_t>(i);
        }
        for (std::size_t i = 0; i < part_count_; ++i) lengths_[parts_[i].place] = 0;
        lengths_[used_ - 1] = 0;
        stored_count_ = used_ - 1;
        last_.found = 0;
        go_on(1);
    }

    static Context context_of(const FastRow* row) {
        return {row[0].first, Children{row[0].first, row[1].first}.size(), row->log_backoff};
    }
    static Context context_of(const FastTopRow*) { return {}; }

    // From order m to the one above: what was stored is what is looked behind, and so is what was read before
    // the first words of the parts. What is behind the last word is kept for a part that goes on from there.
    void go_on(std::uint32_t m) {
        std::swap(contexts_, next_);
        const std::size_t last = used_ - 2;
        if (lengths_[last] == m) {
            last_.found |= 1U << (m - 1);
            last_.children[m - 1] = contexts_[last].children();
            last_.log_backoff[m - 1] = contexts_[last].log_backoff;
        }
        for (std::size_t i = 0; i < part_count_; ++i) {
            const State& before = *parts_[i].before;
            const Children children = before.children[m - 1];
            const bool is_there = before.found >> (m - 1) & 1;
            contexts_[parts_[i].place] =
                is_there ? Context{children.from, children.size(), before.log_backoff[m - 1]} : Context{};
            if (is_there && m > 1) stored_[stored_count_++] = parts_[i].place;  // of order 1 all places are
        }
    }

    // No n-gram of this order is stored: all contexts are passed by.
    void pass_all(std::uint32_t n) {
        asked_count_ = 0;
        ask(n, 0, stored_count_);
        for (std::size_t k = 0; k < asked_count_; ++k)
            log_probs_[asked_[k].place] += contexts_[asked_[k].place - 1].log_backoff;
    }

    // Each step is a stretch behind the one before it.
    template <class Row>
    void ask_all(std::uint32_t n, const Row* rows) {
        const std::size_t all = stored_count_;
        std::size_t looked = 0, answered = 0;
        asked_count_ = stored_count_ = 0;
        for (std::size_t k = 0; k < all || answered < asked_count_; k += kStretch) {
            const std::size_t look_to = asked_count_, answer_to = looked;
            if (k < all) ask(n, k, std::min(k + kStretch, all));
            look(rows, looked, look_to);
            answer(n, rows, answered, answer_to);
            looked = look_to;
            answered = answer_to;
        }
    }

    void ask(std::uint32_t n, std::size_t from, std::size_t to) {
        const std::uint16_t* const index = layout_->slots_of(n, {});
        const Context* const contexts = contexts_;
        // Where the n-gram without its first word is not stored, this one is not: its context is passed by,
        // and so is one that nothing follows.
        const std::uint32_t shortest = holds_suffixes_ ? n - 1 : 1;
        std::size_t count = asked_count_;
        for (std::size_t k = from; k < to; ++k) {
            const std::uint32_t place = stored_[k] + 1;
            const Context in = contexts[place - 1];
            const std::uint64_t is_asked = (lengths_[place] >= shortest) & (in.size != 0);
            const std::uint64_t home = FastHash::home(in.size, FastHash::mix(words_[place]));
            const std::uint16_t* const slots = index + ((2 * std::uint64_t{in.from} + home) & (0 - is_asked));
            prefetch(slots);
            asked_[count].slots = slots;
            asked_[count].place = place;
            log_probs_[place] += chosen(!is_asked, in.log_backoff, 0);
            count += is_asked;
        }
        asked_count_ = count;
    }

    // x where it is so, y where not, without a branch.
    static double chosen(bool is_so, double x, double y) {
        const auto of_x = std::bit_cast<std::uint64_t>(x), of_y = std::bit_cast<std::uint64_t>(y);
        return std::bit_cast<double>(of_y ^ ((of_x ^ of_y) & (0 - std::uint64_t{is_so})));
    }

    template <class Row>
    void look(const Row* rows, std::size_t from, std::size_t to) {
        const Context* const contexts = contexts_;
        for (std::size_t k = from; k < to; ++k) {
            Asked& asked = asked_[k];
            const Context in = contexts[asked.place - 1];
            FastHash::Seen seen{0, false, true};
            if (in.size < kHashed) [[likely]]
                seen = FastHash::look(asked.slots, in.size, FastHash::mix(words_[asked.place]));
            asked.is_seen = seen.is_there;
            asked.is_unsure = seen.is_unsure;
            asked.row = (in.from + seen.row) & (0 - std::uint32_t{seen.is_there});
            prefetch(rows + asked.row);
            if constexpr (std::is_same_v<Row, FastRow>) prefetch(rows + asked.row + 1);
        }
    }

    template <class Row>
    void answer(std::uint32_t n, const Row* rows, std::size_t from, std::size_t to) {
        const Context* const contexts = contexts_;
        Context* const next = next_;
        std::size_t count = stored_count_;
        for (std::size_t k = from; k < to; ++k) {
            const Asked asked = asked_[k];
            const std::uint32_t place = asked.place, word = words_[place];
            const Row* at = rows + asked.row;
            bool is_there = asked.is_seen & (at->word == word);
            if (asked.is_unsure | (asked.is_seen & !is_there)) [[unlikely]] {
                const Found found = layout_->find(n, contexts[place - 1].children(), word);
                is_there = found.is_there;
                at = rows + found.row;
            }
            const double passed = log_probs_[place] + contexts[place - 1].log_backoff;
            log_probs_[place] = chosen(is_there, at->log_prob, passed);
            lengths_[place] ^= static_cast<std::uint8_t>((lengths_[place] ^ n) & (0U - is_there));
            next[place] = context_of(at);
            stored_[count] = place;
            count += is_there;
        }
        stored_count_ = count;
    }

    const FastLayout* layout_ = nullptr;
    std::uint32_t order_ = 0;
    bool holds_suffixes_ = false;
    State nothing_, carried_, last_;  // last_: after the last word
    std::size_t used_ = 0, part_count_ = 0, stored_count_ = 0, asked_count_ = 0;
    std::array<Part, kParts> parts_;
    std::array<std::uint32_t, kPlaces + 1> words_;
    std::array<double, kPlaces + 1> log_probs_;
    std::array<std::uint8_t, kPlaces + 1> lengths_;
    std::array<Context, kPlaces + 1> of_odd_, of_even_;
    Context* contexts_ = of_odd_.data();             // by place; of the order below the one asked for …
    Context* next_ = of_even_.data();                // … and of that
    std::array<std::uint32_t, kPlaces + 1> stored_;  // places that have one of this order
    std::array<Asked, kPlaces + 1> asked_;
};

}  // namespace chainrule
