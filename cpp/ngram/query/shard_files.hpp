// Model files of shards: splitting a model into files by first words, and joining them to one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ngram/format/shards.hpp"
#include "ngram/query/model.hpp"

namespace chainrule {

// Writes the shard of these first words to a new file in the layout of `model`. Quantised values are copied.
void write_shard(const Model& model, WordRange range, const std::string& path, std::size_t threads);

// Writes shards, in order, to one new file: the bytes of the model that was split. Shard s has the words
// [bounds[s], bounds[s + 1]). `holds_suffixes` is the property of that model; shards do not have it.
void join_shards(std::span<const std::shared_ptr<const Model>> shards, std::span<const std::uint32_t> bounds,
                 bool holds_suffixes, const std::string& path, std::size_t threads);

}  // namespace chainrule
