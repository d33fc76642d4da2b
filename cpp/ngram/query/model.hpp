// An n-gram model of any layout: scoring, next words, conversion.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/format/model_file.hpp"
#include "ngram/format/stored_vocabulary.hpp"
#include "ngram/query/interleaved_scorer.hpp"
#include "ngram/query/next_word.hpp"
#include "ngram/query/prefix_lookup.hpp"
#include "ngram/query/state.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Back-off trace of one word: the value stored with the matched n-gram, and the contexts backed off from.
struct BackoffTrace {
    std::uint8_t length = 0;
    double stored = 0;          // log p
    double* weights = nullptr;  // by m − 1: log back-off weight of the context of m words, 0 if not used
    bool* is_stored = nullptr;  // by m − 1: whether any word is stored after the context of m words
};

struct LayoutChoice {
    LayoutKind kind = LayoutKind::fast;
    std::uint32_t bits = 0;
};

// Whether 8-bit rows are still exact, or have been quantised and renormalised before (rows of a model file).
enum class RowValues { exact, quantized };

// Metadata and sections of a model file with these rows.
FileMetadata metadata_of(const Rows& rows, const ModelMetadata& model, LayoutChoice layout);
std::vector<Section> model_sections(const Rows& rows, const FileMetadata& metadata,
                                    std::shared_ptr<const WordList> names, std::size_t threads,
                                    RowValues values = RowValues::exact);

// Immutable and thread-safe.
class Model {
  public:
    // Throws Error if the file is damaged or cannot be queried.
    static std::shared_ptr<const Model> open(const std::string& path, bool verify,
                                             std::uint64_t verified_at_open = kVerifiedAtOpen,
                                             std::uint64_t largest_copy = 0);
    // Builds a model in memory. Without a vocabulary it knows words by id only.
    static std::shared_ptr<const Model> of(const Rows& rows, const ModelMetadata& metadata,
                                           std::shared_ptr<const WordList> names, LayoutChoice layout,
                                           std::size_t threads);
    virtual ~Model() = default;

    const ModelFile& file() const { return *file_; }
    const ModelMetadata& metadata() const { return file_->metadata().model; }
    std::size_t order() const { return file_->metadata().sizes.size(); }
    // Null if the model has no vocabulary.
    const StoredVocabulary* names() const {
        file_->begin_call();
        return names_.size() ? &names_ : nullptr;
    }
    // Identifies this object within the process, from 1 on: states are valid for one model only.
    std::uint64_t identity() const { return identity_; }
    const State& begin() const { return begin_; }  // state at the beginning of a line
    // Id of a word; that of <unk> if it is unknown, kNoWord without <unk>.
    std::uint32_t number(std::string_view word) const;

    // Word ids of segments are below the vocabulary size, or kNoWord.
    virtual void score(std::span<const Piece> pieces, std::size_t threads) const = 0;
    virtual StepResult step(const State& before, std::uint32_t word, State& after) const = 0;
    virtual State after(std::span<const std::int32_t> words) const = 0;
    virtual void trace(const State& before, std::uint32_t word, BackoffTrace& into) const = 0;
    virtual void next(const State& state, double* into) const = 0;  // log p of all words
    virtual std::vector<Candidate> top(const State& state, std::size_t k) const = 0;
    virtual std::uint32_t draw(const State& state, double uniform) const = 0;
    virtual void prefixes(const PrefixBatch& batch) const = 0;  // ids below the vocabulary size, or negative
    virtual Extensions extensions(std::span<const std::int32_t> context) const = 0;  // fewer words than n
    virtual std::unique_ptr<Rows> rows() const = 0;  // valid while the model exists

  protected:
    explicit Model(std::shared_ptr<ModelFile> file);

    std::shared_ptr<ModelFile> file_;
    StoredVocabulary names_;
    std::uint64_t identity_;
    State begin_;
};

// Largest |Σ_w p(w | h) − 1| over up to `contexts` stored contexts h spread evenly over the rows of each
// order, as many with the largest back-off weights, and as many random contexts, most of which are not
// stored. Deterministic; infinite if a sum is.
double largest_deviation(const Model& model, std::size_t contexts);

}  // namespace chainrule
