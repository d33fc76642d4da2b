// Many pieces of text scored side by side: while the rows of one come from memory, others are worked on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ngram/query/state.hpp"

namespace chainrule {

// Words to score, and what was read before them.
struct Piece {
    const std::int32_t* before = nullptr;  // words that are read from nothing, but not scored
    std::uint32_t before_size = 0;
    bool begins = false;  // nothing of that: it goes on from the beginning of a line
    // What is read after each target; null: the target.
    const std::int32_t* inputs = nullptr;
    const std::int32_t* targets = nullptr;
    std::uint32_t size = 0;           // targets
    double* log_probs = nullptr;      // of each
    std::uint8_t* lengths = nullptr;  // of the n-grams that answered; null: not wanted
};

template <class Layout>
class Lanes {
  public:
    Lanes(const Asking<Layout>& asking, const State& begin) : asking_(asking), begin_(begin) {}

    void score(std::span<const Piece> pieces) {
        next_ = 0;
        std::size_t active = 0;
        while (active < kLanes && take(lanes_[active], pieces)) ++active;
        while (active > 0) {
            const std::size_t ahead = active / 2;
            for (std::size_t i = 0; i < active; ++i) {
                Lane& later = lanes_[i + ahead < active ? i + ahead : i + ahead - active];
                asking_.prefetch_rows(*later.state, later.word);
                Lane& lane = lanes_[i];
                if (advance(lane) || take(lane, pieces)) continue;
                --active;
                if (i < active) lane.move_from(lanes_[active]);
                break;  // the lanes have changed
            }
        }
    }

  private:
    static constexpr std::size_t kLanes = 24;

    struct Lane {
        std::array<State, 2> states;
        State *state = nullptr, *other = nullptr;
        Piece piece;
        std::uint32_t at = 0;       // targets answered
        std::uint32_t to_read = 0;  // words of `before` that are still to be read
        std::uint32_t word = 0;     // that the next step asks for
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

    // The next piece that has words; false where none is left.
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
            lane.state->found = lane.state->reach = 0;
        }
        choose(lane);
        return true;
    }

    // What is looked up next: a word read before the targets, or a target.
    void choose(Lane& lane) {
        const Piece& piece = lane.piece;
        lane.is_target = lane.to_read == 0;
        lane.word =
            lane.is_target
                ? static_cast<std::uint32_t>(piece.targets[lane.at])
                : asking_.read_as(static_cast<std::uint32_t>(piece.before[piece.before_size - lane.to_read]));
        asking_.prefetch(*lane.state, lane.word);
    }

    // One look-up; false where the piece is at its end.
    bool advance(Lane& lane) {
        const Answer answer = asking_.step(*lane.state, lane.word, *lane.other);
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
            piece.inputs ? asking_.read_as(static_cast<std::uint32_t>(piece.inputs[lane.at - 1])) : lane.word;
        if (input == lane.word) {
            std::swap(lane.state, lane.other);
            choose(lane);
        } else {  // it was not what is read: read that from the state before
            lane.word = input;
            lane.is_target = false;
            asking_.prefetch(*lane.state, lane.word);
        }
        return true;
    }

    const Asking<Layout>& asking_;
    const State& begin_;
    std::size_t next_ = 0;
    std::array<Lane, kLanes> lanes_;
};

}  // namespace chainrule
