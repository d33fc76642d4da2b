// A model file and all that is asked of it, whatever its layout.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ngram/format/model_file.hpp"
#include "ngram/format/names.hpp"
#include "ngram/query/interleaved_scorer.hpp"
#include "ngram/query/next_word.hpp"
#include "ngram/query/state.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// How a word was answered: what is stored with the n-gram that answered, and the contexts passed by.
struct Trace {
    std::uint8_t length = 0;
    double stored = 0;          // log p
    double* weights = nullptr;  // by m − 1: log weight of the context of m words, 0 where none was passed by
    bool* is_stored = nullptr;  // by m − 1: whether any word is stored after the context of m words
};

struct LayoutChoice {
    LayoutKind kind = LayoutKind::fast;
    std::uint32_t bits = 0;
};

// What a file of these rows says of itself, and its parts.
FileFacts facts_of(const Rows& rows, const ModelFacts& model, LayoutChoice layout);
std::vector<Section> model_sections(const Rows& rows, const FileFacts& facts,
                                    std::shared_ptr<const NameList> names, std::size_t threads);

// Immutable; several threads may ask.
class Model {
  public:
    // Failure where the file is not whole, or not one that can be asked.
    static std::shared_ptr<const Model> open(const std::string& path, bool verify,
                                             std::uint64_t verified_at_open = kVerifiedAtOpen,
                                             std::uint64_t largest_copy = 0);
    // The model of these rows, in memory. Without names it knows words by number alone.
    static std::shared_ptr<const Model> of(const Rows& rows, const ModelFacts& facts,
                                           std::shared_ptr<const NameList> names, LayoutChoice layout,
                                           std::size_t threads);
    virtual ~Model() = default;

    const ModelFile& file() const { return *file_; }
    const ModelFacts& facts() const { return file_->facts().model; }
    std::size_t order() const { return file_->facts().sizes.size(); }
    // Null where there are none.
    const Names* names() const {
        file_->begin_call();
        return names_.size() ? &names_ : nullptr;
    }
    // Of this object in this process, from 1 on: the states of one model mean nothing to another.
    std::uint64_t identity() const { return identity_; }
    const State& begin() const { return begin_; }  // of a line
    // The number of a word: that of <unk> where it is unknown, kNoWord where there is no <unk>.
    std::uint32_t number(std::string_view word) const;

    // Words of pieces are below the vocabulary's size, or kNoWord.
    virtual void score(std::span<const Piece> pieces, std::size_t threads) const = 0;
    virtual Answer step(const State& before, std::uint32_t word, State& after) const = 0;
    virtual State after(std::span<const std::int32_t> words) const = 0;
    virtual void trace(const State& before, std::uint32_t word, Trace& into) const = 0;
    virtual void next(const State& state, double* into) const = 0;  // log p of all words
    virtual std::vector<Candidate> top(const State& state, std::size_t k) const = 0;
    virtual std::uint32_t draw(const State& state, double uniform) const = 0;
    virtual std::unique_ptr<Rows> rows() const = 0;  // which the model must outlive

  protected:
    explicit Model(std::shared_ptr<ModelFile> file);

    std::shared_ptr<ModelFile> file_;
    Names names_;
    std::uint64_t identity_;
    State begin_;
};

}  // namespace chainrule
