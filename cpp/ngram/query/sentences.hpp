// Sentences of plain text: cut into words at blanks and tabs, after splitting punctuation where that is
// wanted, looked up, scored many at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/query/model.hpp"
#include "speller/speller.hpp"
#include "text/punctuation.hpp"

namespace chainrule {

struct SentenceOptions {
    bool begins = true;  // with <s>
    bool ends = true;    // </s> is predicted too
    std::size_t threads = 1;
    const Speller* speller = nullptr;  // of unknown words, where their letters count
    Splitting splitting = {};          // of punctuation
};

struct SentenceScores {
    std::vector<double> log_probs;       // by sentence
    std::vector<std::int64_t> tokens;    // predicted, </s> among them
    std::vector<std::int64_t> unknowns;  // words that the model does not know
    std::vector<double> spellings;       // log p of how these are written; empty without a speller
};

// Of each token, sentence after sentence.
struct TokenScores {
    std::vector<float> log_probs;
    std::vector<std::uint8_t> lengths;  // of the n-grams that answered
    std::vector<std::uint8_t> unknown;  // 0 or 1
    std::vector<std::int64_t> ends;     // by sentence, where its tokens end
};

// log p of one sentence, on this thread.
double score_sentence(const Model& model, std::string_view sentence, bool begins, bool ends);

SentenceScores score_sentences(const Model& model, std::span<const std::string_view> sentences,
                               const SentenceOptions& options);
TokenScores score_tokens(const Model& model, std::span<const std::string_view> sentences,
                         const SentenceOptions& options);

// The lines of a text: LF, CRLF and CR end them, and the last need not be ended; a byte order mark before the
// first is none of it. Failure where the bytes are those of a packed file (gzip, xz, zstd, bzip2).
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace chainrule
