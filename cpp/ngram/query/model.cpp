// The rows of a model file as Rows, to write it again in another form.
#include "ngram/query/model.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/parallel.hpp"
#include "ngram/format/compact_layout.hpp"
#include "ngram/format/hashed_layout.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/quantize.hpp"
#include "ngram/query/level_scorer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// The layout and the facts must outlive it.
template <class Layout>
class LayoutRows final : public Rows {
  public:
    LayoutRows(const Layout& layout, const FileFacts& facts) : layout_(layout), facts_(facts) {}

    std::size_t order() const override { return facts_.sizes.size(); }
    std::uint64_t size(std::size_t n) const override { return facts_.sizes[n - 1]; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override {
        if (first && count == 0) first[0] = edge(n, from);
        for (std::size_t i = 0; i < count; ++i) {
            std::uint32_t w = 0;
            const Found row = layout_.at(n, static_cast<std::uint32_t>(from + i), w);
            if (word) word[i] = w;
            if (log_prob) log_prob[i] = row.log_prob;
            if (log_backoff) log_backoff[i] = row.log_backoff;
            if (first) {
                first[i] = row.children.from;
                first[i + 1] = row.children.to;
            }
        }
    }

  private:
    // Where the continuations of the rows from `row` on begin.
    std::uint32_t edge(std::size_t n, std::uint64_t row) const {
        std::uint32_t word = 0;
        if (row < size(n)) return layout_.at(n, static_cast<std::uint32_t>(row), word).children.from;
        return row ? layout_.at(n, static_cast<std::uint32_t>(row - 1), word).children.to : 0;
    }

    const Layout& layout_;
    const FileFacts& facts_;
};

namespace {

template <class Layout>
class ModelOf final : public Model {
  public:
    explicit ModelOf(std::shared_ptr<ModelFile> file)
        : Model(std::move(file)), layout_(file_), asking_(layout_, facts(), order()) {
        begin_ = asking_.begin();
    }

    void score(std::span<const Piece> pieces, std::size_t threads) const override {
        file_->begin_call();
        std::uint64_t words = 0;
        for (const Piece& piece : pieces) words += piece.size;
        file_->asked(words);
        if constexpr (std::is_same_v<Layout, FastLayout>) {
            const ModelFacts& about = facts();
            // It reads <s> as a word like any other, which a stream does not.
            if (file_->is_verified() && about.log_missing == 0 && about.unknown != kNoWord && order() > 1 &&
                !about.is_stream && FastLevels::can_score(pieces))
                return in_parts(pieces, threads, [&](std::span<const Piece> some) {
                    FastLevels::score(layout_, begin_, some);
                });
        }
        in_parts(pieces, threads, [&](std::span<const Piece> some) {
            std::make_unique<Lanes<Layout>>(asking_, begin_)->score(some);
        });
    }
    Answer step(const State& before, std::uint32_t word, State& after) const override {
        file_->begin_call();
        return asking_.step(before, word, after);
    }
    State after(std::span<const std::int32_t> words) const override {
        file_->begin_call();
        return asking_.after(words.data(), words.size());
    }
    void trace(const State& before, std::uint32_t word, Trace& into) const override {
        file_->begin_call();
        State after;
        into.length = static_cast<std::uint8_t>(asking_.step(before, word, after).length);
        into.stored = layout_.first(word).log_prob;
        for (std::size_t m = 1; m < order(); ++m) {
            const bool is_found = before.found >> (m - 1) & 1;
            into.is_stored[m - 1] = is_found && before.children[m - 1].size();
            into.weights[m - 1] = m + 1 > into.length ? asking_.weight(before, m) : 0.0;
            if (m + 1 == into.length)
                into.stored = layout_.find(m + 1, before.children[m - 1], word).log_prob;
        }
    }
    void next(const State& state, double* into) const override {
        file_->begin_call();
        Next<Layout>(asking_, unigrams()).all(state, into);
    }
    std::vector<Candidate> top(const State& state, std::size_t k) const override {
        file_->begin_call();
        return Next<Layout>(asking_, unigrams()).top(state, k);
    }
    std::uint32_t draw(const State& state, double uniform) const override {
        file_->begin_call();
        return Next<Layout>(asking_, unigrams()).draw(state, uniform);
    }
    std::unique_ptr<Rows> rows() const override {
        file_->begin_call();
        return std::make_unique<LayoutRows<Layout>>(layout_, file_->facts());
    }

  private:
    template <class Use>
    static void in_parts(std::span<const Piece> pieces, std::size_t threads, const Use& use) {
        threads = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(pieces.size(), 1));
        const auto part = [&](std::size_t t) {
            const std::size_t from = part_begin(pieces.size(), t, threads);
            use(pieces.subspan(from, part_begin(pieces.size(), t + 1, threads) - from));
        };
        if (threads == 1) {
            part(0);
        } else {
            in_parallel(threads, part);
        }
    }

    // Made when something first asks for them, not when a file is opened.
    const Unigrams& unigrams() const {
        const std::lock_guard lock(mutex_);
        if (!unigrams_) unigrams_ = std::make_unique<Unigrams>(layout_, facts().vocabulary);
        return *unigrams_;
    }

    Layout layout_;
    Asking<Layout> asking_;
    mutable std::mutex mutex_;
    mutable std::unique_ptr<const Unigrams> unigrams_;
};

std::shared_ptr<const Model> model_of(std::shared_ptr<ModelFile> file) {
    if (file->facts().layout == LayoutKind::fast)
        return std::make_shared<ModelOf<FastLayout>>(std::move(file));
    return std::make_shared<ModelOf<SmallLayout>>(std::move(file));
}

std::vector<Section> row_sections(const Rows& rows, const FileFacts& facts, std::size_t threads) {
    if (facts.layout == LayoutKind::fast) return fast_sections(rows, facts);
    const bool is_renormalized =
        facts.bits != 0 && facts.model.is_normalized && facts.model.log_missing == 0 && rows.order() > 1;
    if (!is_renormalized) return small_sections(rows, facts, threads);
    // The values are few already, so that the layout keeps them as they are.
    const auto quantized = std::make_shared<const QuantizedRows>(rows, threads);
    FileFacts exact = facts;
    exact.bits = 0;
    std::vector<Section> sections = small_sections(*quantized, exact, threads);
    for (Section& section : sections)
        section.fill = [quantized, fill = std::move(section.fill)](std::uint64_t from, std::uint64_t size,
                                                                   char* into) { fill(from, size, into); };
    return sections;
}

}  // namespace

std::vector<Section> model_sections(const Rows& rows, const FileFacts& facts,
                                    std::shared_ptr<const NameList> names, std::size_t threads) {
    std::vector<Section> sections = row_sections(rows, facts, threads);
    if (!names) return sections;
    if (names->size() != facts.model.vocabulary) {
        throw Failure("there are " + std::to_string(names->size()) + " names for " +
                      std::to_string(facts.model.vocabulary) + " words");
    }
    for (Section& section : name_sections(std::move(names))) sections.push_back(std::move(section));
    return sections;
}

FileFacts facts_of(const Rows& rows, const ModelFacts& model, LayoutChoice layout) {
    FileFacts facts{layout.kind, layout.bits, model, {}};
    for (std::size_t n = 1; n <= rows.order(); ++n) facts.sizes.push_back(rows.size(n));
    return facts;
}

Model::Model(std::shared_ptr<ModelFile> file) : file_(std::move(file)), names_(file_) {
    static std::atomic<std::uint64_t> last{0};
    identity_ = ++last;
}

std::uint32_t Model::number(std::string_view word) const {
    file_->begin_call();
    const std::int64_t found = names_.size() ? names_.find(word) : -1;
    return found >= 0 ? static_cast<std::uint32_t>(found) : facts().unknown;
}

std::shared_ptr<const Model> Model::open(const std::string& path, bool verify, std::uint64_t verified_at_open,
                                         std::uint64_t largest_copy) {
    return model_of(ModelFile::open(path, verify, verified_at_open, largest_copy));
}

std::shared_ptr<const Model> Model::of(const Rows& rows, const ModelFacts& facts,
                                       std::shared_ptr<const NameList> names, LayoutChoice layout,
                                       std::size_t threads) {
    const FileFacts about = facts_of(rows, facts, layout);
    return model_of(
        ModelFile::of(model_image(about, model_sections(rows, about, std::move(names), threads), threads)));
}

}  // namespace chainrule
