// Scores many text segments interleaved: while the rows of one segment are fetched from memory, others are
// processed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ngram/query/state.hpp"

namespace chainrule {

// A text segment: words to score and their left context.
struct Piece {
    const std::int32_t* before = nullptr;  // context words, read from the empty state and not scored
    std::uint32_t before_size = 0;
    bool begins = false;  // ignores `before` and starts at the beginning of a line
    // Words read after each target; null: the targets themselves.
    const std::int32_t* inputs = nullptr;
    const std::int32_t* targets = nullptr;
    std::uint32_t size = 0;           // targets
    double* log_probs = nullptr;      // one per target
    std::uint8_t* lengths = nullptr;  // matched n-gram lengths; null: not needed
};

template <NgramLayout Layout>
class InterleavedScorer {
  public:
    InterleavedScorer(const Query<Layout>& query, const State& begin) : query_(query), begin_(begin) {}

    void score(std::span<const Piece> pieces) {
        next_ = 0;
        std::size_t active = 0;
        while (active < kLanes && take(lanes_[active], pieces)) ++active;
        while (active > 0) {
            const std::size_t ahead = active / 2;
            for (std::size_t i = 0; i < active; ++i) {
                Lane& later = lanes_[i + ahead < active ? i + ahead : i + ahead - active];
                query_.prefetch_rows(*later.state, later.word);
                Lane& lane = lanes_[i];
                if (advance(lane) || take(lane, pieces)) continue;
                --active;
                if (i < active) lane.move_from(lanes_[active]);
                break;  // the active lanes have changed
            }
        }
    }

  private:
    static constexpr std::size_t kLanes = 24;

    struct Lane {
        std::array<State, 2> states;
        State *state = nullptr, *other = nullptr;
        Piece piece;
        std::uint32_t at = 0;       // targets scored so far
        std::uint32_t to_read = 0;  // words of `before` not yet read
        std::uint32_t word = 0;     // query word of the next step
        bool is_target = false;

        void move_from(const Lane& lane) {
            states[0].copy_from(*lane.state);
            state = &states[0];
            other = &states[1];
            piece = lane.piece;
            at = lane.at;
            to_read = lane.to_read;
            word = lane.word;
            is_target = lane.is_target;
        }
    };

    // Assigns the next non-empty segment to a lane; false if none is left.
    bool take(Lane& lane, std::span<const Piece> pieces) {
        while (next_ < pieces.size() && pieces[next_].size == 0) ++next_;
        if (next_ == pieces.size()) return false;
        lane.piece = pieces[next_++];
        lane.state = &lane.states[0];
        lane.other = &lane.states[1];
        lane.at = 0;
        lane.to_read = lane.piece.begins ? 0 : lane.piece.before_size;
        if (lane.piece.begins) {
            lane.state->copy_from(begin_);
        } else {
            lane.state->stored = lane.state->reach = 0;
        }
        choose(lane);
        return true;
    }

    // Chooses the next word to look up: a context word or a target.
    void choose(Lane& lane) {
        const Piece& piece = lane.piece;
        lane.is_target = lane.to_read == 0;
        lane.word =
            lane.is_target
                ? static_cast<std::uint32_t>(piece.targets[lane.at])
                : query_.read_as(static_cast<std::uint32_t>(piece.before[piece.before_size - lane.to_read]));
        query_.prefetch(*lane.state, lane.word);
    }

    // Performs one lookup; false at the end of the segment.
    bool advance(Lane& lane) {
        const StepResult answer = query_.step(*lane.state, lane.word, *lane.other);
        if (!lane.is_target) {
            std::swap(lane.state, lane.other);
            if (lane.to_read) --lane.to_read;
            choose(lane);
            return true;
        }
        const Piece& piece = lane.piece;
        piece.log_probs[lane.at] = answer.log_prob;
        if (piece.lengths) piece.lengths[lane.at] = static_cast<std::uint8_t>(answer.length);
        if (++lane.at == piece.size) return false;
        const std::uint32_t input =
            piece.inputs ? query_.read_as(static_cast<std::uint32_t>(piece.inputs[lane.at - 1])) : lane.word;
        if (input == lane.word) {
            std::swap(lane.state, lane.other);
            choose(lane);
        } else {  // the word read differs from the target: read it from the previous state
            lane.word = input;
            lane.is_target = false;
            query_.prefetch(*lane.state, lane.word);
        }
        return true;
    }

    const Query<Layout>& query_;
    const State& begin_;
    std::size_t next_ = 0;
    std::array<Lane, kLanes> lanes_;
};

}  // namespace chainrule
