#include "ngram_sentences.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "parallel.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAtOnce = 256;  // sentences of one turn of a thread

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// One turn's sentences as numbers, and as pieces to score.
struct Turn {
    std::vector<std::int32_t> words;
    std::vector<std::uint8_t> unknown;  // by word
    std::vector<std::size_t> ends;      // by sentence
    std::vector<double> log_probs;      // by word
    std::vector<std::uint8_t> lengths;
    std::vector<Piece> pieces;
};

void cut(const Model& model, std::string_view text, Turn& turn) {
    const char *at = text.data(), *const end = at + text.size();
    for (;;) {
        while (at < end && is_blank(*at)) ++at;
        if (at == end) return;
        const char* const from = at;
        while (at < end && !is_blank(*at)) ++at;
        const std::int64_t found = model.names()->find({from, static_cast<std::size_t>(at - from)});
        const std::uint32_t word = found >= 0 ? static_cast<std::uint32_t>(found) : model.facts().unknown;
        turn.words.push_back(static_cast<std::int32_t>(word));
        turn.unknown.push_back(found < 0 || word == model.facts().unknown);
    }
}

void read(const Model& model, std::span<const std::string_view> sentences, const SentenceOptions& options,
          Turn& turn) {
    turn.words.clear();
    turn.unknown.clear();
    turn.ends.clear();
    for (const std::string_view sentence : sentences) {
        cut(model, sentence, turn);
        if (options.ends) {
            turn.words.push_back(static_cast<std::int32_t>(model.facts().end));
            turn.unknown.push_back(0);
        }
        turn.ends.push_back(turn.words.size());
    }
}

void score(const Model& model, const SentenceOptions& options, Turn& turn) {
    turn.log_probs.resize(turn.words.size());
    turn.lengths.resize(turn.words.size());
    turn.pieces.clear();
    std::size_t from = 0;
    for (const std::size_t end : turn.ends) {
        Piece piece;
        piece.begins = options.begins;
        piece.targets = turn.words.data() + from;
        piece.size = static_cast<std::uint32_t>(end - from);
        piece.log_probs = turn.log_probs.data() + from;
        piece.lengths = turn.lengths.data() + from;
        turn.pieces.push_back(piece);
        from = end;
    }
    model.score(turn.pieces, 1);
}

// `use(turn, first sentence)` on each thread, for all sentences a turn at a time.
template <class Use>
void in_turns(const Model& model, std::span<const std::string_view> sentences, const SentenceOptions& options,
              const Use& use) {
    if (!model.names())
        throw Failure("this model knows words by number alone; it has no names to read text by");
    const std::size_t turns = (sentences.size() + kAtOnce - 1) / kAtOnce;
    std::atomic<std::size_t> next{0};
    in_parallel(
        std::clamp<std::size_t>(options.threads, 1, std::max<std::size_t>(turns, 1)), [&](std::size_t) {
            Turn turn;
            for (std::size_t i; (i = next.fetch_add(1)) < turns;) {
                const std::size_t from = i * kAtOnce, size = std::min(kAtOnce, sentences.size() - from);
                read(model, sentences.subspan(from, size), options, turn);
                score(model, options, turn);
                use(turn, from);
            }
        });
}

}  // namespace

SentenceScores score_sentences(const Model& model, std::span<const std::string_view> sentences,
                               const SentenceOptions& options) {
    const std::size_t S = sentences.size();
    SentenceScores found{std::vector<double>(S), std::vector<std::int64_t>(S), std::vector<std::int64_t>(S)};
    in_turns(model, sentences, options, [&](const Turn& turn, std::size_t first) {
        std::size_t from = 0;
        for (std::size_t i = 0; i < turn.ends.size(); from = turn.ends[i++]) {
            const std::size_t end = turn.ends[i];
            double sum = 0;
            std::int64_t unknowns = 0;
            for (std::size_t t = from; t < end; ++t) {
                sum += turn.log_probs[t];
                unknowns += turn.unknown[t];
            }
            found.log_probs[first + i] = sum;
            found.tokens[first + i] = static_cast<std::int64_t>(end - from);
            found.unknowns[first + i] = unknowns;
        }
    });
    return found;
}

TokenScores score_tokens(const Model& model, std::span<const std::string_view> sentences,
                         const SentenceOptions& options) {
    // Each turn's tokens are kept apart until it is known where they belong.
    struct Part {
        std::vector<float> log_probs;
        std::vector<std::uint8_t> lengths, unknown;
    };
    std::vector<Part> parts((sentences.size() + kAtOnce - 1) / kAtOnce);
    TokenScores found;
    found.ends.resize(sentences.size());
    in_turns(model, sentences, options, [&](const Turn& turn, std::size_t first) {
        Part& part = parts[first / kAtOnce];
        part.log_probs.assign(turn.log_probs.begin(), turn.log_probs.end());
        part.lengths = turn.lengths;
        part.unknown = turn.unknown;
        for (std::size_t i = 0; i < turn.ends.size(); ++i) {
            found.ends[first + i] = static_cast<std::int64_t>(turn.ends[i]);
        }
    });
    std::size_t total = 0;
    for (const Part& part : parts) total += part.log_probs.size();
    found.log_probs.reserve(total);
    found.lengths.reserve(total);
    found.unknown.reserve(total);
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const auto before = static_cast<std::int64_t>(found.log_probs.size());
        const std::size_t end = std::min((p + 1) * kAtOnce, sentences.size());
        for (std::size_t i = p * kAtOnce; i < end; ++i) found.ends[i] += before;
        found.log_probs.insert(found.log_probs.end(), parts[p].log_probs.begin(), parts[p].log_probs.end());
        found.lengths.insert(found.lengths.end(), parts[p].lengths.begin(), parts[p].lengths.end());
        found.unknown.insert(found.unknown.end(), parts[p].unknown.begin(), parts[p].unknown.end());
    }
    return found;
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    std::size_t from = 0;
    while (from < text.size()) {
        std::size_t end = std::min(text.find('\n', from), text.size());
        end = std::min(text.substr(0, end).find('\r', from), end);
        lines.push_back(text.substr(from, end - from));
        from = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
    }
    return lines;
}

}  // namespace chainrule
