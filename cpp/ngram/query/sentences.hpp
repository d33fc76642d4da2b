// Scoring of sentences given as text: optional punctuation splitting, splitting at blanks and tabs,
// vocabulary lookup, batched scoring.
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
    bool begins = true;  // start from <s>
    bool ends = true;    // also predict </s>
    std::size_t threads = 1;
    const Speller* speller = nullptr;  // scores the spelling of unknown words, if set
    Splitting splitting = {};          // punctuation splitting
};

struct SentenceScores {
    std::vector<double> log_probs;       // by sentence
    std::vector<std::int64_t> tokens;    // predicted tokens, including </s>
    std::vector<std::int64_t> unknowns;  // out-of-vocabulary words
    std::vector<double> spellings;       // log p of their spelling; empty without a speller
};

// Per token, sentence after sentence.
struct TokenScores {
    std::vector<float> log_probs;
    std::vector<std::uint8_t> lengths;  // lengths of the matched n-grams
    std::vector<std::uint8_t> unknown;  // 0 or 1
    std::vector<std::int64_t> ends;     // by sentence: end of its tokens
};

// log p of one sentence, on the calling thread.
double score_sentence(const Model& model, std::string_view sentence, bool begins, bool ends);

SentenceScores score_sentences(const Model& model, std::span<const std::string_view> sentences,
                               const SentenceOptions& options);
TokenScores score_tokens(const Model& model, std::span<const std::string_view> sentences,
                         const SentenceOptions& options);

// Splits a text into lines at LF, CRLF and CR; the last line need not be terminated, and a byte order mark is
// skipped. Throws Error for compressed data (gzip, xz, zstd, bzip2).
std::vector<std::string_view> split_text_lines(std::string_view text);

}  // namespace chainrule
