#include "ngram/query/model.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "ngram/format/compact_layout.hpp"
#include "ngram/format/hashed_layout.hpp"
#include "ngram/format/layout.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/quantize.hpp"
#include "ngram/query/level_scorer.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

// Rows of a model file, for conversion. The layout and the metadata must outlive this object.
template <NgramLayout Layout>
class LayoutRows final : public Rows {
  public:
    LayoutRows(const Layout& layout, const FileMetadata& metadata) : layout_(layout), metadata_(metadata) {}

    std::size_t order() const override { return metadata_.sizes.size(); }
    std::uint64_t size(std::size_t n) const override { return metadata_.sizes[n - 1]; }
    void read(std::size_t n, std::uint64_t from, std::size_t count, std::uint32_t* word, float* log_prob,
              float* log_backoff, std::uint32_t* first) const override {
        if (first && count == 0) first[0] = edge(n, from);
        for (std::size_t i = 0; i < count; ++i) {
            std::uint32_t w = 0;
            const Lookup row = layout_.at(n, static_cast<std::uint32_t>(from + i), w);
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
    // First extension of the rows from `row` on.
    std::uint32_t edge(std::size_t n, std::uint64_t row) const {
        std::uint32_t word = 0;
        if (row < size(n)) return layout_.at(n, static_cast<std::uint32_t>(row), word).children.from;
        return row ? layout_.at(n, static_cast<std::uint32_t>(row - 1), word).children.to : 0;
    }

    const Layout& layout_;
    const FileMetadata& metadata_;
};

namespace {

template <NgramLayout Layout>
class ModelOf final : public Model {
  public:
    explicit ModelOf(std::shared_ptr<ModelFile> file)
        : Model(std::move(file)), layout_(file_), query_(layout_, metadata(), order()) {
        begin_ = query_.begin();
    }

    void score(std::span<const Piece> pieces, std::size_t threads) const override {
        file_->begin_call();
        std::uint64_t words = 0;
        for (const Piece& piece : pieces) words += piece.size;
        file_->count_lookups(words);
        if constexpr (std::is_same_v<Layout, HashedLayout>) {
            const ModelMetadata& about = metadata();
            // LevelScorer treats <s> as an ordinary word, which stream models do not.
            if (file_->is_verified() && about.log_missing == 0 && about.unknown != kNoWord && order() > 1 &&
                !about.is_stream && LevelScorer::can_score(pieces))
                return score_in_parallel(pieces, threads, [&](std::span<const Piece> part_segments) {
                    LevelScorer::score(layout_, begin_, part_segments);
                });
        }
        score_in_parallel(pieces, threads, [&](std::span<const Piece> part_segments) {
            std::make_unique<InterleavedScorer<Layout>>(query_, begin_)->score(part_segments);
        });
    }
    StepResult step(const State& before, std::uint32_t word, State& after) const override {
        file_->begin_call();
        return query_.step(before, word, after);
    }
    State after(std::span<const std::int32_t> words) const override {
        file_->begin_call();
        return query_.after(words.data(), words.size());
    }
    void trace(const State& before, std::uint32_t word, BackoffTrace& into) const override {
        file_->begin_call();
        State after;
        into.length = static_cast<std::uint8_t>(query_.step(before, word, after).length);
        into.stored = layout_.first(word).log_prob;
        for (std::size_t m = 1; m < order(); ++m) {
            const bool is_found = before.stored >> (m - 1) & 1;
            into.is_stored[m - 1] = is_found && before.children[m - 1].size();
            into.weights[m - 1] = m + 1 > into.length ? query_.weight(before, m) : 0.0;
            if (m + 1 == into.length)
                into.stored = layout_.find(m + 1, before.children[m - 1], word).log_prob;
        }
    }
    void next(const State& state, double* into) const override {
        file_->begin_call();
        NextWord<Layout>(query_, unigrams()).all(state, into);
    }
    std::vector<Candidate> top(const State& state, std::size_t k) const override {
        file_->begin_call();
        return NextWord<Layout>(query_, unigrams()).top(state, k);
    }
    std::uint32_t draw(const State& state, double uniform) const override {
        file_->begin_call();
        return NextWord<Layout>(query_, unigrams()).draw(state, uniform);
    }
    void prefixes(const PrefixBatch& batch) const override {
        file_->begin_call();
        file_->count_lookups(batch.words.size());
        PrefixLookup<Layout>(layout_, order()).prefixes(batch);
    }
    Extensions extensions(std::span<const std::int32_t> context) const override {
        file_->begin_call();
        return PrefixLookup<Layout>(layout_, order()).extensions(context, metadata().vocabulary);
    }
    std::unique_ptr<Rows> rows() const override {
        file_->begin_call();
        return std::make_unique<LayoutRows<Layout>>(layout_, file_->metadata());
    }

  private:
    template <class Use>
    static void score_in_parallel(std::span<const Piece> pieces, std::size_t threads, const Use& use) {
        threads = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(pieces.size(), 1));
        const auto part = [&](std::size_t t) {
            const std::size_t from = part_begin(pieces.size(), t, threads);
            use(pieces.subspan(from, part_begin(pieces.size(), t + 1, threads) - from));
        };
        if (threads == 1) {
            part(0);
        } else {
            parallel_for(threads, part);
        }
    }

    // Built on first use, not when a file is opened.
    const Unigrams& unigrams() const {
        const std::lock_guard lock(mutex_);
        if (!unigrams_) unigrams_ = std::make_unique<Unigrams>(layout_, metadata().vocabulary);
        return *unigrams_;
    }

    Layout layout_;
    Query<Layout> query_;
    mutable std::mutex mutex_;
    mutable std::unique_ptr<const Unigrams> unigrams_;
};

std::shared_ptr<const Model> model_of(std::shared_ptr<ModelFile> file) {
    if (file->metadata().layout == LayoutKind::fast)
        return std::make_shared<ModelOf<HashedLayout>>(std::move(file));
    return std::make_shared<ModelOf<CompactLayout>>(std::move(file));
}

std::vector<Section> row_sections(const Rows& rows, const FileMetadata& metadata, std::size_t threads,
                                  RowValues values) {
    if (metadata.layout == LayoutKind::fast) return hashed_sections(rows, metadata);
    const bool is_renormalized = metadata.bits != 0 && metadata.model.is_normalized &&
                                 metadata.model.log_missing == 0 && rows.order() > 1;
    if (!is_renormalized) return compact_sections(rows, metadata, threads);
    // The layout stores quantised values as they are.
    FileMetadata exact = metadata;
    exact.bits = 0;
    if (values == RowValues::quantized) return compact_sections(rows, exact, threads);
    const auto quantized = std::make_shared<const QuantizedRows>(rows, threads);
    std::vector<Section> sections = compact_sections(*quantized, exact, threads);
    for (Section& section : sections)
        section.fill = [quantized, fill = std::move(section.fill)](std::uint64_t from, std::uint64_t size,
                                                                   char* into) { fill(from, size, into); };
    return sections;
}

}  // namespace

std::vector<Section> model_sections(const Rows& rows, const FileMetadata& metadata,
                                    std::shared_ptr<const WordList> names, std::size_t threads,
                                    RowValues values) {
    std::vector<Section> sections = row_sections(rows, metadata, threads, values);
    if (!names) return sections;
    if (names->size() != metadata.model.vocabulary) {
        throw ArgumentError("there are " + std::to_string(names->size()) + " names for " +
                            std::to_string(metadata.model.vocabulary) + " words");
    }
    for (Section& section : vocabulary_sections(std::move(names))) sections.push_back(std::move(section));
    return sections;
}

FileMetadata metadata_of(const Rows& rows, const ModelMetadata& model, LayoutChoice layout) {
    FileMetadata metadata{layout.kind, layout.bits, model, {}};
    for (std::size_t n = 1; n <= rows.order(); ++n) metadata.sizes.push_back(rows.size(n));
    return metadata;
}

Model::Model(std::shared_ptr<ModelFile> file) : file_(std::move(file)), names_(file_) {
    static std::atomic<std::uint64_t> last{0};
    identity_ = ++last;
}

std::uint32_t Model::number(std::string_view word) const {
    file_->begin_call();
    const std::int64_t id = names_.size() ? names_.find(word) : -1;
    return id >= 0 ? static_cast<std::uint32_t>(id) : metadata().unknown;
}

std::shared_ptr<const Model> Model::open(const std::string& path, bool verify, std::uint64_t verified_at_open,
                                         std::uint64_t largest_copy) {
    return model_of(ModelFile::open(path, verify, verified_at_open, largest_copy));
}

std::shared_ptr<const Model> Model::of(const Rows& rows, const ModelMetadata& metadata,
                                       std::shared_ptr<const WordList> names, LayoutChoice layout,
                                       std::size_t threads) {
    const FileMetadata about = metadata_of(rows, metadata, layout);
    return model_of(
        ModelFile::of(model_image(about, model_sections(rows, about, std::move(names), threads), threads)));
}

namespace {

// Sums of the distributions after some contexts.
class Sums {
  public:
    explicit Sums(const Model& model)
        : model_(model), rows_(model.rows()), log_probs_(model.metadata().vocabulary) {}

    void add(const std::vector<std::int32_t>& context) {
        model_.next(model_.after(context), log_probs_.data());
        double sum = 0;
        for (const double log_prob : log_probs_) sum += std::exp(log_prob);
        const double deviation = std::abs(sum - 1);
        largest_ =
            std::max(largest_, std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation);
    }

    // The words of a row of order n.
    std::vector<std::int32_t> words(std::size_t n, std::uint64_t row) const {
        std::vector<std::int32_t> words(n);
        for (; n > 0; --n) {
            std::uint32_t word = 0;
            rows_->read(n, row, 1, &word, nullptr, nullptr, nullptr);
            words[n - 1] = static_cast<std::int32_t>(word);
            if (n > 1) row = parent(n - 1, row);
        }
        return words;
    }

    // The `count` rows of order n with the largest back-off weights.
    std::vector<std::uint64_t> largest_weights(std::size_t n, std::uint64_t count) const {
        constexpr std::uint64_t kBlock = 4096;
        using Weighted = std::pair<float, std::uint64_t>;  // weight and row
        std::vector<Weighted> heap;                        // the smallest weight first
        std::vector<float> weights(kBlock);
        const std::uint64_t size = rows_->size(n);
        for (std::uint64_t from = 0; from < size; from += kBlock) {
            const std::uint64_t rows = std::min(kBlock, size - from);
            rows_->read(n, from, rows, nullptr, nullptr, weights.data(), nullptr);
            for (std::uint64_t i = 0; i < rows; ++i) {
                if (heap.size() == count && !(weights[i] > heap.front().first)) continue;
                heap.emplace_back(weights[i], from + i);
                std::push_heap(heap.begin(), heap.end(), std::greater<>());
                if (heap.size() <= count) continue;
                std::pop_heap(heap.begin(), heap.end(), std::greater<>());
                heap.pop_back();
            }
        }
        std::vector<std::uint64_t> result;
        for (const Weighted& weighted : heap) result.push_back(weighted.second);
        return result;
    }

    double largest() const { return largest_; }

  private:
    // The context (row of order n) of this row of order n + 1: the last one that begins at or before it
    // and has extensions.
    std::uint64_t parent(std::size_t n, std::uint64_t row) const {
        std::uint64_t from = 0, size = rows_->size(n);
        while (size > 1) {
            const std::uint64_t half = size / 2;
            std::uint32_t edges[2];
            rows_->read(n, from + half, 1, nullptr, nullptr, nullptr, edges);
            from = edges[0] <= row ? from + half : from;
            size = edges[0] <= row ? size - half : half;
        }
        return from;
    }

    const Model& model_;
    std::unique_ptr<Rows> rows_;
    std::vector<double> log_probs_;
    double largest_ = 0;
};

}  // namespace

double largest_deviation(const Model& model, std::size_t contexts) {
    Sums sums(model);
    sums.add({});
    const std::size_t longest = model.order() - 1;
    for (std::size_t n = 1; n <= longest; ++n) {
        const std::uint64_t size = model.file().metadata().sizes[n - 1];
        const std::uint64_t sampled = std::min<std::uint64_t>(size, contexts / longest + 1);
        for (std::uint64_t i = 0; i < sampled; ++i) sums.add(sums.words(n, i * size / sampled));
        for (const std::uint64_t row : sums.largest_weights(n, sampled)) sums.add(sums.words(n, row));
    }
    Random random(1);
    std::vector<std::int32_t> words(longest);
    for (std::size_t i = 0; longest > 0 && i < contexts; ++i) {
        for (std::int32_t& word : words)
            word = static_cast<std::int32_t>(random.below(model.metadata().vocabulary));
        sums.add(words);
    }
    return sums.largest();
}

}  // namespace chainrule
