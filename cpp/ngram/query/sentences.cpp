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

constexpr std::size_t kBatchSize = 256;  // sentences per work item

constexpr std::size_t kBehind = 8;  // padding after the text of a batch, which may be read past its end

// Word ids and segments of one batch of sentences.
struct SentenceBatch {
    std::string text;
    std::vector<std::int32_t> words;
    std::vector<std::uint8_t> unknown;  // by word
    std::vector<std::string_view> oov;  // out-of-vocabulary words, if a speller needs them
    std::vector<std::size_t> ends;      // by sentence
    std::vector<double> log_probs;      // by word
    std::vector<std::uint8_t> lengths;
    std::vector<Piece> pieces;
};

// Sets bit 7 of each byte that is a blank or a tab; exact up to the first of them.
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

// Splits [at, end), which is followed by kBehind blanks, into words: ids to `words`, flags to `unknown`, and
// the text of unknown words to `oov` if needed, which is advanced. Returns the number of words.
template <bool kIsSpelled>
std::size_t cut(const StoredVocabulary& names, std::uint32_t unknown_word, const char* at, const char* end,
                std::int32_t* words, std::uint8_t* unknown, std::string_view*& oov) {
    std::int32_t* const first = words;
    while (at < end) {
        const std::uint64_t eight = eight_at(at);
        const std::uint64_t blanks = blanks_in(eight);
        std::int64_t id;
        const char* const begin = at;
        if (blanks & 0x80) {
            ++at;
            continue;
        }
        if (blanks) [[likely]] {
            const auto bits = static_cast<std::uint32_t>(std::countr_zero(blanks)) & 56U;
            id = names.find_short(eight & ~(~std::uint64_t{0} << bits), bits / 8);
            at += bits / 8 + 1;
        } else {
            const char* to = at + 8;
            std::uint64_t more;
            while (!(more = blanks_in(eight_at(to)))) to += 8;
            to += std::countr_zero(more) / 8;
            id = names.find({at, static_cast<std::size_t>(to - at)});
            at = to + 1;
        }
        const std::uint32_t word = id >= 0 ? static_cast<std::uint32_t>(id) : unknown_word;
        *words++ = static_cast<std::int32_t>(word);
        *unknown++ = word == unknown_word;
        if constexpr (kIsSpelled) {
            *oov = {begin, static_cast<std::size_t>(at - 1 - begin)};
            oov += word == unknown_word;
        }
    }
    return static_cast<std::size_t>(words - first);
}

void read(const Model& model, std::span<const std::string_view> sentences, const SentenceOptions& options,
          SentenceBatch& batch) {
    batch.text.clear();
    for (const std::string_view sentence : sentences) (batch.text += sentence) += ' ';
    batch.text.append(kBehind, ' ');
    const std::size_t most = batch.text.size() / 2 + 1 + sentences.size();  // a word is followed by a blank
    batch.words.resize(most);
    batch.unknown.resize(most);
    batch.oov.resize(options.speller ? most : 0);
    batch.ends.clear();
    const char* at = batch.text.data();
    std::size_t size = 0;
    std::string_view* oov = batch.oov.data();
    const auto cut_here = options.speller ? cut<true> : cut<false>;
    for (const std::string_view sentence : sentences) {
        size += cut_here(*model.names(), model.metadata().unknown, at, at + sentence.size(),
                         &batch.words[size], &batch.unknown[size], oov);
        at += sentence.size() + 1;
        if (options.ends) {
            batch.words[size] = static_cast<std::int32_t>(model.metadata().end);
            batch.unknown[size++] = 0;
        }
        batch.ends.push_back(size);
    }
    batch.words.resize(size);
    batch.unknown.resize(size);
}

void score(const Model& model, const SentenceOptions& options, SentenceBatch& batch) {
    batch.log_probs.resize(batch.words.size());
    batch.lengths.resize(batch.words.size());
    batch.pieces.clear();
    std::size_t from = 0;
    for (const std::size_t end : batch.ends) {
        Piece piece;
        piece.begins = options.begins;
        piece.targets = batch.words.data() + from;
        piece.size = static_cast<std::uint32_t>(end - from);
        piece.log_probs = batch.log_probs.data() + from;
        piece.lengths = batch.lengths.data() + from;
        batch.pieces.push_back(piece);
        from = end;
    }
    model.score(batch.pieces, 1);
}

void require_vocabulary(const Model& model) {
    if (!model.names())
        throw ArgumentError("this model stores word ids only, without a vocabulary; it cannot read text");
}

// Sentences after punctuation splitting, with their own storage.
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

// Calls use(batch, index of its first sentence) for all batches, on several threads.
template <class Use>
void for_each_batch(const Model& model, std::span<const std::string_view> sentences,
                    const SentenceOptions& options, const Use& use) {
    require_vocabulary(model);
    const std::size_t batches = (sentences.size() + kBatchSize - 1) / kBatchSize;
    std::atomic<std::size_t> next{0};
    parallel_for(
        std::clamp<std::size_t>(options.threads, 1, std::max<std::size_t>(batches, 1)), [&](std::size_t) {
            SentenceBatch batch;
            SplitSentences split;
            for (std::size_t i; (i = next.fetch_add(1)) < batches;) {
                const std::size_t from = i * kBatchSize, size = std::min(kBatchSize, sentences.size() - from);
                const std::span<const std::string_view> some = sentences.subspan(from, size);
                read(model, options.splitting.is_on ? split.of(some, options.splitting) : some, options,
                     batch);
                score(model, options, batch);
                use(batch, from);
            }
        });
}

}  // namespace

double score_sentence(const Model& model, std::string_view sentence, bool begins, bool ends) {
    require_vocabulary(model);
    thread_local SentenceBatch batch;  // reuses its memory
    const SentenceOptions options{begins, ends, 1};
    read(model, {&sentence, 1}, options, batch);
    score(model, options, batch);
    return std::accumulate(batch.log_probs.begin(), batch.log_probs.end(), 0.0);
}

SentenceScores score_sentences(const Model& model, std::span<const std::string_view> sentences,
                               const SentenceOptions& options) {
    const std::size_t S = sentences.size();
    SentenceScores scores{std::vector<double>(S), std::vector<std::int64_t>(S), std::vector<std::int64_t>(S),
                          std::vector<double>(options.speller ? S : 0)};
    for_each_batch(model, sentences, options, [&](const SentenceBatch& batch, std::size_t first) {
        std::size_t from = 0;
        std::optional<Speller::CachedScorer> speller;
        if (options.speller) speller.emplace(*options.speller);
        auto oov = batch.oov.begin();
        for (std::size_t i = 0; i < batch.ends.size(); from = batch.ends[i++]) {
            const std::size_t end = batch.ends[i];
            double sum = 0;
            std::int64_t unknowns = 0;
            for (std::size_t t = from; t < end; ++t) {
                sum += batch.log_probs[t];
                unknowns += batch.unknown[t];
            }
            scores.log_probs[first + i] = sum;
            scores.tokens[first + i] = static_cast<std::int64_t>(end - from);
            scores.unknowns[first + i] = unknowns;
            if (!speller) continue;
            double spelled = 0;
            for (; unknowns > 0; --unknowns) spelled += speller->log_prob(*oov++);
            scores.spellings[first + i] = spelled;
        }
    });
    return scores;
}

TokenScores score_tokens(const Model& model, std::span<const std::string_view> sentences,
                         const SentenceOptions& options) {
    // Tokens of each batch, concatenated when all sizes are known.
    struct Part {
        std::vector<float> log_probs;
        std::vector<std::uint8_t> lengths, unknown;
    };
    std::vector<Part> parts((sentences.size() + kBatchSize - 1) / kBatchSize);
    TokenScores scores;
    scores.ends.resize(sentences.size());
    for_each_batch(model, sentences, options, [&](const SentenceBatch& batch, std::size_t first) {
        Part& part = parts[first / kBatchSize];
        part.log_probs.assign(batch.log_probs.begin(), batch.log_probs.end());
        part.lengths = batch.lengths;
        part.unknown = batch.unknown;
        for (std::size_t i = 0; i < batch.ends.size(); ++i) {
            scores.ends[first + i] = static_cast<std::int64_t>(batch.ends[i]);
        }
    });
    std::size_t total = 0;
    for (const Part& part : parts) total += part.log_probs.size();
    scores.log_probs.reserve(total);
    scores.lengths.reserve(total);
    scores.unknown.reserve(total);
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const auto before = static_cast<std::int64_t>(scores.log_probs.size());
        const std::size_t end = std::min((p + 1) * kBatchSize, sentences.size());
        for (std::size_t i = p * kBatchSize; i < end; ++i) scores.ends[i] += before;
        scores.log_probs.insert(scores.log_probs.end(), parts[p].log_probs.begin(), parts[p].log_probs.end());
        scores.lengths.insert(scores.lengths.end(), parts[p].lengths.begin(), parts[p].lengths.end());
        scores.unknown.insert(scores.unknown.end(), parts[p].unknown.begin(), parts[p].unknown.end());
    }
    return scores;
}

std::vector<std::string_view> split_text_lines(std::string_view text) {
    for (const std::string_view packed : {"\x1F\x8B",
                                          "\xFD"
                                          "7zXZ",
                                          "\x28\xB5\x2F\xFD", "BZh91AY"})
        if (text.starts_with(packed)) throw ArgumentError("the text is packed; unpack it first");
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    std::vector<std::string_view> lines;
    std::size_t from = 0, feed = 0, carriage = 0;  // next LF and next CR
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
