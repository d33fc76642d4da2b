#include "ngram/query/sentences.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/parallel.hpp"

namespace chainrule {

namespace {

constexpr std::size_t kAtOnce = 256;  // sentences of one turn of a thread

constexpr std::size_t kBehind = 8;  // blanks behind the text of a turn, which may be read past its end

// One turn's sentences as numbers, and as pieces to score.
struct Turn {
    std::string text;
    std::vector<std::int32_t> words;
    std::vector<std::uint8_t> unknown;      // by word
    std::vector<std::string_view> strange;  // the unknown words, where they are spelled
    std::vector<std::size_t> ends;          // by sentence
    std::vector<double> log_probs;          // by word
    std::vector<std::uint8_t> lengths;
    std::vector<Piece> pieces;
};

// Bit 7 of each byte of eight that is a blank or a tab, right up to the first of them.
std::uint64_t blanks_in(std::uint64_t eight) {
    constexpr std::uint64_t kOnes = 0x0101010101010101ULL, kHighs = 0x8080808080808080ULL;
    const std::uint64_t blank = eight ^ (' ' * kOnes), tab = eight ^ ('\t' * kOnes);
    return (((blank - kOnes) & ~blank) | ((tab - kOnes) & ~tab)) & kHighs;
}

std::uint64_t eight_at(const char* at) {
    std::uint64_t eight;
    std::memcpy(&eight, at, 8);
    return eight;
}

// The words of [at, end), behind which kBehind blanks stand: the numbers go to `words`, what is unknown to
// `unknown`, and to `strange` where that is wanted, which moves behind them; all have room. How many words.
template <bool kIsSpelled>
std::size_t cut(const Names& names, std::uint32_t unknown_word, const char* at, const char* end,
                std::int32_t* words, std::uint8_t* unknown, std::string_view*& strange) {
    std::int32_t* const first = words;
    while (at < end) {
        const std::uint64_t eight = eight_at(at);
        const std::uint64_t blanks = blanks_in(eight);
        std::int64_t found;
        const char* const begin = at;
        if (blanks & 0x80) {
            ++at;
            continue;
        }
        if (blanks) [[likely]] {
            const auto bits = static_cast<std::uint32_t>(std::countr_zero(blanks)) & 56U;
            found = names.find_short(eight & ~(~std::uint64_t{0} << bits), bits / 8);
            at += bits / 8 + 1;
        } else {
            const char* to = at + 8;
            std::uint64_t more;
            while (!(more = blanks_in(eight_at(to)))) to += 8;
            to += std::countr_zero(more) / 8;
            found = names.find({at, static_cast<std::size_t>(to - at)});
            at = to + 1;
        }
        const std::uint32_t word = found >= 0 ? static_cast<std::uint32_t>(found) : unknown_word;
        *words++ = static_cast<std::int32_t>(word);
        *unknown++ = word == unknown_word;
        if constexpr (kIsSpelled) {
            *strange = {begin, static_cast<std::size_t>(at - 1 - begin)};
            strange += word == unknown_word;
        }
    }
    return static_cast<std::size_t>(words - first);
}

void read(const Model& model, std::span<const std::string_view> sentences, const SentenceOptions& options,
          Turn& turn) {
    turn.text.clear();
    for (const std::string_view sentence : sentences) (turn.text += sentence) += ' ';
    turn.text.append(kBehind, ' ');
    const std::size_t most = turn.text.size() / 2 + 1 + sentences.size();  // a word is followed by a blank
    turn.words.resize(most);
    turn.unknown.resize(most);
    turn.strange.resize(options.speller ? most : 0);
    turn.ends.clear();
    const char* at = turn.text.data();
    std::size_t size = 0;
    std::string_view* strange = turn.strange.data();
    const auto cut_here = options.speller ? cut<true> : cut<false>;
    for (const std::string_view sentence : sentences) {
        size += cut_here(*model.names(), model.facts().unknown, at, at + sentence.size(), &turn.words[size],
                         &turn.unknown[size], strange);
        at += sentence.size() + 1;
        if (options.ends) {
            turn.words[size] = static_cast<std::int32_t>(model.facts().end);
            turn.unknown[size++] = 0;
        }
        turn.ends.push_back(size);
    }
    turn.words.resize(size);
    turn.unknown.resize(size);
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

void need_names(const Model& model) {
    if (!model.names())
        throw Failure("this model knows words by number alone; it has no names to read text by");
}

// Sentences whose punctuation is split off, in memory of their own.
class SplitSentences {
  public:
    std::span<const std::string_view> of(std::span<const std::string_view> sentences,
                                         const Splitting& splitting) {
        text_.clear();
        ends_.clear();
        for (const std::string_view sentence : sentences) {
            append_split(sentence, splitting.placeholder, text_);
            ends_.push_back(text_.size());
        }
        views_.clear();
        std::size_t from = 0;
        for (const std::size_t end : ends_) {
            views_.push_back(std::string_view(text_).substr(from, end - from));
            from = end;
        }
        return views_;
    }

  private:
    std::string text_;
    std::vector<std::size_t> ends_;
    std::vector<std::string_view> views_;
};

// `use(turn, first sentence)` on each thread, for all sentences a turn at a time.
template <class Use>
void in_turns(const Model& model, std::span<const std::string_view> sentences, const SentenceOptions& options,
              const Use& use) {
    need_names(model);
    const std::size_t turns = (sentences.size() + kAtOnce - 1) / kAtOnce;
    std::atomic<std::size_t> next{0};
    in_parallel(
        std::clamp<std::size_t>(options.threads, 1, std::max<std::size_t>(turns, 1)), [&](std::size_t) {
            Turn turn;
            SplitSentences split;
            for (std::size_t i; (i = next.fetch_add(1)) < turns;) {
                const std::size_t from = i * kAtOnce, size = std::min(kAtOnce, sentences.size() - from);
                const std::span<const std::string_view> some = sentences.subspan(from, size);
                read(model, options.splitting.is_on ? split.of(some, options.splitting) : some, options,
                     turn);
                score(model, options, turn);
                use(turn, from);
            }
        });
}

}  // namespace

double score_sentence(const Model& model, std::string_view sentence, bool begins, bool ends) {
    need_names(model);
    thread_local Turn turn;  // its memory serves the next sentence
    const SentenceOptions options{begins, ends, 1};
    read(model, {&sentence, 1}, options, turn);
    score(model, options, turn);
    return std::accumulate(turn.log_probs.begin(), turn.log_probs.end(), 0.0);
}

SentenceScores score_sentences(const Model& model, std::span<const std::string_view> sentences,
                               const SentenceOptions& options) {
    const std::size_t S = sentences.size();
    SentenceScores found{std::vector<double>(S), std::vector<std::int64_t>(S), std::vector<std::int64_t>(S),
                         std::vector<double>(options.speller ? S : 0)};
    in_turns(model, sentences, options, [&](const Turn& turn, std::size_t first) {
        std::size_t from = 0;
        std::optional<Speller::Reader> speller;
        if (options.speller) speller.emplace(*options.speller);
        auto strange = turn.strange.begin();
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
            if (!speller) continue;
            double spelled = 0;
            for (; unknowns > 0; --unknowns) spelled += speller->log_prob(*strange++);
            found.spellings[first + i] = spelled;
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
    for (const std::string_view packed : {"\x1F\x8B",
                                          "\xFD"
                                          "7zXZ",
                                          "\x28\xB5\x2F\xFD", "BZh91AY"})
        if (text.starts_with(packed)) throw Failure("the text is packed; unpack it first");
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    std::vector<std::string_view> lines;
    std::size_t from = 0, feed = 0, carriage = 0;  // the next of each from there on
    while (from < text.size()) {
        if (feed <= from) feed = std::min(text.find('\n', from), text.size());
        if (carriage <= from) carriage = std::min(text.find('\r', from), text.size());
        const std::size_t end = std::min(feed, carriage);
        lines.push_back(text.substr(from, end - from));
        from = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
    }
    return lines;
}

}  // namespace chainrule
