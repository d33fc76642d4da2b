#include "ngram/query/shard_files.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ngram/tables.hpp"

namespace chainrule {

namespace {

// Writes rows in the layout of a model, with its words.
void write_like(const Model& model, const Rows& rows, bool holds_suffixes, const std::string& path,
                std::size_t threads) {
    const FileMetadata& original = model.file().metadata();
    ModelMetadata properties = original.model;
    properties.holds_suffixes = holds_suffixes;
    const FileMetadata metadata = metadata_of(rows, properties, {original.layout, original.bits});
    std::shared_ptr<const WordList> names;
    if (model.names()) names = std::make_shared<WordList>(model.names()->list());
    write_model(path, metadata,
                model_sections(rows, metadata, std::move(names), threads, RowValues::quantized), threads);
}

bool have_equal_properties(const ModelMetadata& a, const ModelMetadata& b) {
    return a.vocabulary == b.vocabulary && a.begin == b.begin && a.end == b.end && a.unknown == b.unknown &&
           a.is_stream == b.is_stream && a.is_closed == b.is_closed && a.is_normalized == b.is_normalized &&
           a.log_missing == b.log_missing && a.starts_at_begin == b.starts_at_begin;
}

}  // namespace

void write_shard(const Model& model, WordRange range, const std::string& path, std::size_t threads) {
    const std::unique_ptr<Rows> rows = model.rows();
    // The suffix of an n-gram begins with another word, which can be in another shard.
    write_like(model, ShardRows(*rows, range), false, path, threads);
}

void join_shards(std::span<const std::shared_ptr<const Model>> shards, std::span<const std::uint32_t> bounds,
                 bool holds_suffixes, const std::string& path, std::size_t threads) {
    if (bounds.size() != shards.size() + 1) throw ArgumentError("the shards do not match their bounds");
    std::vector<std::unique_ptr<Rows>> rows;
    std::vector<JoinedRows::Part> parts;
    for (std::size_t s = 0; s < shards.size(); ++s) {
        const FileMetadata &first = shards[0]->file().metadata(), &other = shards[s]->file().metadata();
        if (first.layout != other.layout || first.bits != other.bits ||
            !have_equal_properties(first.model, other.model))
            throw ArgumentError("the shards are of different models");
        rows.push_back(shards[s]->rows());
        parts.push_back({rows.back().get(), {bounds[s], bounds[s + 1]}});
    }
    const JoinedRows joined(std::move(parts));  // throws if there are no shards
    write_like(*shards[0], joined, holds_suffixes, path, threads);
}

}  // namespace chainrule
