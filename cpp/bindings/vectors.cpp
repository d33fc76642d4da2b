// Python bindings of word vectors: word counter, word2vec, kernels, co-occurrences, GloVe.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <tuple>

#include "base/buffer.hpp"
#include "bindings/bindings.hpp"
#include "vectors/cooccurrence.hpp"
#include "vectors/corpus.hpp"
#include "vectors/glove.hpp"
#include "vectors/kernels/kernels.hpp"
#include "vectors/padded_rows.hpp"
#include "vectors/word2vec.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

using Floats = nb::ndarray<nb::numpy, float>;

using LockedCounter = Locked<WordIdWriter>;
using Word2vecTraining = Locked<Word2vec>;

constexpr std::size_t kWords = 1 << 10;  // words per call

// Words in small batches, so that there is no second copy of all.
nb::list words_of(LockedCounter& shared, const AnyArray& numbers) {
    const auto ids = checked_span<std::int64_t>(numbers, "numbers", "int64");
    nb::list made;
    std::vector<std::string> words;
    for (std::size_t first = 0; first < ids.size(); first += kWords) {
        words.clear();
        shared.use([&](const WordIdWriter& counter) {
            for (const std::int64_t i : ids.subspan(first, std::min(kWords, ids.size() - first))) {
                if (i < 0 || static_cast<std::size_t>(i) >= counter.types()) {
                    throw ArgumentError("there is no word with the id " + std::to_string(i));
                }
                words.emplace_back(counter.word(static_cast<std::size_t>(i)));
            }
        });
        for (const std::string& word : words) made.append(nb::str(word.data(), word.size()));
    }
    return made;
}

// Words by descending count, then position, and their counts.
nb::tuple ranked_words(const WordSums& sums, std::size_t limit) {
    nb::list words;
    std::vector<std::uint64_t> counts;
    for (const std::uint32_t number : sums.ranked(limit)) {
        const std::string_view word = sums.word(number);
        words.append(nb::str(word.data(), word.size()));
        counts.push_back(sums.count(number));
    }
    const std::size_t size = counts.size();
    return nb::make_tuple(words, to_numpy_array(std::move(counts), {size}));
}

void bind_words(nb::module_& module) {
    nb::class_<LockedCounter>(module, "WordCounter",
                              "Writes a text as a file of word ids and counts its words.")
        .def(
            "__init__",
            [](LockedCounter* self, const std::filesystem::path& file) {
                new (self) LockedCounter(std::make_unique<WordIdWriter>(file.string()));
            },
            nb::arg("file"))
        .def("feed",
             [](LockedCounter& self, const nb::bytes& text) {
                 const std::string_view piece(text.c_str(), text.size());
                 self.use([&](WordIdWriter& counter) { counter.feed(piece); });
             })
        .def("finish", [](LockedCounter& self) { self.use([](WordIdWriter& counter) { counter.finish(); }); })
        .def_prop_ro("words", [](LockedCounter& self) { return self.use([](auto& c) { return c.words(); }); })
        .def_prop_ro("types", [](LockedCounter& self) { return self.use([](auto& c) { return c.types(); }); })
        .def_prop_ro("numbers",
                     [](LockedCounter& self) { return self.use([](auto& c) { return c.numbers(); }); })
        .def("counts",
             [](LockedCounter& self) {
                 auto counts = self.use([](auto& c) { return c.counts(); });
                 const std::size_t size = counts.size();
                 return to_numpy_array(std::move(counts), {size});
             })
        .def("words_of", &words_of, nb::arg("numbers"))
        .def(
            "records",
            [](LockedCounter& self, std::uint32_t parts, std::uint32_t partition) {
                if (parts == 0) throw ArgumentError("parts must be at least 1");
                nb::list records;
                for (const std::string& record :
                     self.use([&](auto& c) { return c.records(parts, partition); }))
                    records.append(nb::bytes(record.data(), record.size()));
                return records;
            },
            nb::arg("parts"), nb::arg("partition"));
    nb::class_<WordSums>(module, "WordSums", "Adds up the word counts of the parts of a text.")
        .def(nb::init<>())
        .def(
            "add", [](WordSums& self, const nb::bytes& record) { self.add({record.c_str(), record.size()}); },
            nb::arg("record"))
        .def(
            "record",
            [](const WordSums& self, std::uint64_t min_count) {
                const std::string record = self.record(min_count);
                return nb::bytes(record.data(), record.size());
            },
            nb::arg("min_count"))
        .def("ranked", &ranked_words, nb::arg("limit"))
        .def_prop_ro("types", &WordSums::types)
        .def_prop_ro("words", &WordSums::words)
        .def_prop_ro("highest_count", &WordSums::highest_count);
    nb::class_<WordIndex>(module, "WordIndex", "Ids of the words of a vocabulary.")
        .def(
            "__init__",
            [](WordIndex* self, const nb::bytes& words) {
                new (self) WordIndex(std::string_view(words.c_str(), words.size()));
            },
            nb::arg("words"))
        .def("__len__", &WordIndex::size)
        .def(
            "ids_of",
            [](const WordIndex& self, LockedCounter& text) {
                auto ids = text.use([&](const WordIdWriter& counter) { return self.ids_of(counter); });
                const std::size_t size = ids.size();
                return to_numpy_array(std::move(ids), {size});
            },
            nb::arg("text"));
}

template <class T>
T setting(const nb::dict& settings, const char* name) {
    if (!settings.contains(name)) throw ArgumentError(std::string("the setting ") + name + " is missing");
    T value;
    if (!nb::try_cast<T>(settings[name], value)) {
        throw ArgumentError(std::string("the setting ") + name + " has the invalid value " +
                            nb::repr(settings[name]).c_str());
    }
    return value;
}

Word2vecConfig config_of(const nb::dict& settings) {
    Word2vecConfig config;
    const auto method = setting<std::string>(settings, "method");
    if (method != "skipgram" && method != "cbow") throw ArgumentError("the method must be skipgram or cbow");
    config.is_cbow = method == "cbow";
    config.dimensions = setting<std::size_t>(settings, "dimensions");
    config.window = setting<std::size_t>(settings, "window");
    config.negative = setting<std::size_t>(settings, "negative");
    config.epochs = setting<std::size_t>(settings, "epochs");
    config.rate = setting<float>(settings, "rate");
    config.last_rate = setting<float>(settings, "last_rate");
    config.sample = setting<double>(settings, "sample");
    config.power = setting<double>(settings, "power");
    config.threads = setting<std::size_t>(settings, "threads");
    config.seed = setting<std::uint64_t>(settings, "seed");
    config.simd = setting<std::string>(settings, "simd");
    return config;
}

void make_word2vec(Word2vecTraining* self, const nb::dict& settings, const std::filesystem::path& file,
                   std::uint64_t numbers, const AnyArray& number_of, const AnyArray& counts,
                   const AnyArray& begins, const AnyArray& rows, std::size_t buckets) {
    const Word2vecConfig config = config_of(settings);
    const auto number_of_span = checked_span<std::int32_t>(number_of, "number_of", "int32");
    const auto counts_span = checked_span<std::uint64_t>(counts, "counts", "uint64");
    const auto begins_span = checked_span<std::uint64_t>(begins, "begins", "uint64");
    const auto rows_span = checked_span<std::uint32_t>(rows, "rows", "uint32");
    const nb::gil_scoped_release free;
    Subwords subwords{
        {begins_span.begin(), begins_span.end()}, {rows_span.begin(), rows_span.end()}, buckets};
    new (self) Word2vecTraining(std::make_unique<Word2vec>(config, file.string(), numbers, number_of_span,
                                                           counts_span, std::move(subwords)));
}

void bind_word2vec_training(nb::module_& module) {
    nb::class_<Word2vecTraining>(module, "Word2vec",
                                 "Skip-gram or CBOW with negative sampling over a file of word ids.")
        .def("__init__", &make_word2vec, nb::arg("settings"), nb::arg("file"), nb::arg("numbers"),
             nb::arg("number_of"), nb::arg("counts"), nb::arg("begins"), nb::arg("rows"), nb::arg("buckets"))
        .def(
            "run",
            [](Word2vecTraining& self, double seconds) {
                return self.use([&](auto& w) { return w.run(seconds); });
            },
            nb::arg("seconds"))
        .def("learnt",
             [](Word2vecTraining& self) {
                 const Word2vecProgress progress = self.use([](auto& w) { return w.progress(); });
                 return std::make_tuple(progress.words, progress.of, progress.loss, progress.rate);
             })
        .def("last_loss",
             [](Word2vecTraining& self) { return self.use([](const Word2vec& w) { return w.last_loss(); }); })
        .def_prop_ro(
            "simd",
            [](Word2vecTraining& self) { return self.use([](auto& w) { return std::string(w.simd()); }); })
        .def("input",
             [](nb::handle self) {  // a view that keeps the vectors alive
                 Word2vec& model =
                     *nb::cast<Word2vecTraining&>(self).use([](Word2vec& model) { return &model; });
                 return nb::ndarray<nb::numpy, const float>(model.input(), {model.rows(), model.dimensions()},
                                                            self,
                                                            {static_cast<std::int64_t>(model.width()), 1});
             })
        .def("output",
             [](Word2vecTraining& self) {  // a copy: the memory may be released
                 std::vector<float> made;
                 std::size_t words = 0, dimensions = 0;
                 self.use([&](Word2vec& model) {
                     model.copy_output(made);
                     words = model.words();
                     dimensions = model.dimensions();
                 });
                 return to_numpy_array(std::move(made), {words, dimensions});
             })
        .def("finish", [](Word2vecTraining& self) { self.use([](Word2vec& model) { model.finish(); }); });
}

// A Python matrix as rows aligned to 64 bytes, padded with `padding`.
class Rows {
  public:
    Rows(const AnyArray& array, const char* name, float padding = 0) {
        const auto values = checked_span<float>(array, name, "float32", 2);
        count_ = array.shape(0);
        dimensions_ = array.shape(1);
        width_ = padded(dimensions_);
        values_ = AlignedFloats(count_ * width_);
        std::fill_n(values_.data(), count_ * width_, padding);
        for (std::size_t row = 0; row < count_; ++row) {
            std::copy_n(values.data() + row * dimensions_, dimensions_, values_.data() + row * width_);
        }
    }

    float* row(std::size_t i) { return values_.data() + i * width_; }
    std::vector<float*> chosen(const AnyArray& numbers, const char* name) {
        std::vector<float*> made;
        for (const std::uint32_t i : checked_span<std::uint32_t>(numbers, name, "uint32")) {
            if (i >= count_)
                throw ArgumentError(std::string(name) + " contains a row index that is out of range");
            made.push_back(row(i));
        }
        if (made.empty()) throw ArgumentError(std::string(name) + " is empty; give at least one row index");
        return made;
    }
    Floats made() {
        std::vector<float> values;
        for (std::size_t i = 0; i < count_; ++i) values.insert(values.end(), row(i), row(i) + dimensions_);
        return to_numpy_array(std::move(values), {count_, dimensions_});
    }
    std::size_t width() const { return width_; }
    std::size_t dimensions() const { return dimensions_; }

  private:
    std::size_t count_ = 0, dimensions_ = 0, width_ = 0;
    AlignedFloats values_;
};

std::tuple<Floats, Floats, double> one_step(const std::string& simd, const AnyArray& input,
                                            const AnyArray& output, const AnyArray& x, const AnyArray& y,
                                            float rate, bool is_bag) {
    const Kernels& kernels = choose_kernels(simd);
    Rows rows(input, "input"), targets(output, "output");
    if (rows.width() != targets.width())
        throw ArgumentError("input and output must have the same number of columns");
    const std::vector<float*> from = rows.chosen(x, "x"), to = targets.chosen(y, "y");
    AlignedFloats scratch(kGroup * from.size() + 2 * rows.width() + kGroup);
    double loss = 0;
    const Step step{from.data(),  from.size(), to.data(),      to.size(),
                    rows.width(), rate,        scratch.data(), &loss};
    (is_bag ? kernels.bag : kernels.window)(step);
    return {rows.made(), targets.made(), loss};
}

std::tuple<Floats, Floats, float> one_fit(const std::string& simd, const AnyArray& pair,
                                          const AnyArray& squares, float weight, float log_x, float rate) {
    const Kernels& kernels = choose_kernels(simd);
    Rows rows(pair, "pair"), sums(squares, "squares", 1);
    if (pair.shape(0) != 2 || squares.shape(0) != 2 || pair.shape(1) != squares.shape(1) ||
        pair.shape(1) == 0) {
        throw ArgumentError(
            "pair and squares must each have two rows of equal length, with the bias in the last column");
    }
    const Pair step{rows.row(0),           rows.row(1), sums.row(0), sums.row(1), rows.width(),
                    rows.dimensions() - 1, weight,      log_x,       rate};
    const float cost = kernels.fit(step);
    return {rows.made(), sums.made(), cost};
}

void bind_kernels(nb::module_& module) {
    module.def("kernel_names", [] {
        nb::list names;
        for (const char* name : {"none", "avx2", "avx512"}) {
            try {
                choose_kernels(name);
                names.append(name);
            } catch (const Error&) {  // not supported by this processor
            }
        }
        return names;
    });
    const auto step = [&](const char* name, bool is_bag) {
        module.def(
            name,
            [is_bag](const std::string& simd, const AnyArray& input, const AnyArray& output,
                     const AnyArray& x, const AnyArray& y,
                     float rate) { return one_step(simd, input, output, x, y, rate, is_bag); },
            nb::arg("simd"), nb::arg("input"), nb::arg("output"), nb::arg("x"), nb::arg("y"),
            nb::arg("rate"));
    };
    step("kernel_window", false);
    step("kernel_bag", true);
    module.def("kernel_fit", &one_fit, nb::arg("simd"), nb::arg("pair"), nb::arg("squares"),
               nb::arg("weight"), nb::arg("log_x"), nb::arg("rate"));
}

using CooccurrenceCount = Locked<Cooccurrence>;
using GloveTraining = Locked<Glove>;
using PartialSum = Locked<CooccurrenceSum>;

void make_cooccurrence(CooccurrenceCount* self, const std::filesystem::path& file, std::uint64_t numbers,
                       const AnyArray& number_of, std::size_t words, const std::filesystem::path& out,
                       std::size_t window, std::uint64_t bytes, std::size_t threads, std::uint64_t seed,
                       std::size_t ranges) {
    const auto number_of_span = checked_span<std::int32_t>(number_of, "number_of", "int32");
    const CooccurrenceConfig config{window, bytes, threads, seed, ranges};
    const nb::gil_scoped_release free;
    new (self) CooccurrenceCount(
        std::make_unique<Cooccurrence>(config, file.string(), numbers, number_of_span, words, out.string()));
}

void make_glove(GloveTraining* self, const std::filesystem::path& file, std::uint64_t records,
                std::size_t words, std::size_t dimensions, std::size_t epochs, float rate, double x_max,
                double alpha, std::size_t threads, std::uint64_t seed, const std::string& simd) {
    const GloveConfig config{dimensions, epochs, rate, x_max, alpha, threads, seed, simd};
    const nb::gil_scoped_release free;
    new (self) GloveTraining(std::make_unique<Glove>(config, file.string(), records, words));
}

nb::ndarray<nb::numpy, float> glove_result(GloveTraining& self) {
    std::size_t words = 0, dimensions = 0;
    std::vector<float> made;
    self.use([&](const Glove& glove) {
        words = glove.words();
        dimensions = glove.dimensions();
        made.resize(words * dimensions);
        glove.result(made);
    });
    return to_numpy_array(std::move(made), {words, dimensions});
}

void bind_cooccurrence(nb::module_& module) {
    nb::class_<CooccurrenceCount>(module, "Cooccurrence",
                                  "Counts co-occurrences of words and writes a file of records.")
        .def("__init__", &make_cooccurrence, nb::arg("file"), nb::arg("numbers"), nb::arg("number_of"),
             nb::arg("words"), nb::arg("out"), nb::kw_only(), nb::arg("window"), nb::arg("bytes"),
             nb::arg("threads"), nb::arg("seed"), nb::arg("ranges") = 0)
        .def(
            "run",
            [](CooccurrenceCount& self, double seconds) {
                return self.use([&](auto& c) { return c.run(seconds); });
            },
            nb::arg("seconds"))
        .def("counted",
             [](CooccurrenceCount& self) {
                 const CooccurrenceProgress found = self.use([](const auto& c) { return c.progress(); });
                 return std::make_tuple(found.is_merging, found.done, found.of);
             })
        .def_prop_ro(
            "records",
            [](CooccurrenceCount& self) { return self.use([](const auto& c) { return c.records(); }); })
        .def("parts",
             [](CooccurrenceCount& self) {
                 nb::list parts;
                 for (const auto& [range, size] : self.use([](const auto& c) { return c.parts(); }))
                     parts.append(nb::make_tuple(range, size));
                 return parts;
             })
        .def_prop_ro(
            "runs", [](CooccurrenceCount& self) { return self.use([](const auto& c) { return c.runs(); }); });
    nb::class_<PartialSum>(module, "CooccurrenceSum",
                           "Adds up the co-occurrences of the parts of a text for one range of pairs.")
        .def(
            "__init__",
            [](PartialSum* self, const std::filesystem::path& out, std::size_t window, std::uint64_t bytes,
               std::uint64_t seed) {
                new (self) PartialSum(std::make_unique<CooccurrenceSum>(
                    CooccurrenceConfig{window, bytes, 1, seed, 0}, out.string()));
            },
            nb::arg("out"), nb::kw_only(), nb::arg("window"), nb::arg("bytes"), nb::arg("seed"))
        .def(
            "add",
            [](PartialSum& self, const nb::bytes& counts) {
                const std::string_view bytes(counts.c_str(), counts.size());
                self.use([&](CooccurrenceSum& sum) { sum.add(bytes); });
            },
            nb::arg("counts"))
        .def("finish",
             [](PartialSum& self) { return self.use([](CooccurrenceSum& sum) { return sum.finish(); }); });
}

void bind_glove(nb::module_& module) {
    nb::class_<GloveTraining>(module, "Glove", "GloVe trained by AdaGrad on a file of co-occurrence records.")
        .def("__init__", &make_glove, nb::arg("file"), nb::arg("records"), nb::arg("words"), nb::kw_only(),
             nb::arg("dimensions"), nb::arg("epochs"), nb::arg("rate"), nb::arg("x_max"), nb::arg("alpha"),
             nb::arg("threads"), nb::arg("seed"), nb::arg("simd"))
        .def(
            "run",
            [](GloveTraining& self, double seconds) {
                return self.use([&](auto& g) { return g.run(seconds); });
            },
            nb::arg("seconds"))
        .def("learnt",
             [](GloveTraining& self) {
                 const GloveProgress found = self.use([](const auto& g) { return g.progress(); });
                 return std::make_tuple(found.pairs, found.of, found.cost);
             })
        .def_prop_ro(
            "simd",
            [](GloveTraining& self) { return self.use([](const auto& g) { return std::string(g.simd()); }); })
        .def("result", &glove_result);
}

}  // namespace

void bind_vectors(nb::module_& module) {
    bind_words(module);
    bind_word2vec_training(module);
    bind_kernels(module);
    bind_cooccurrence(module);
    bind_glove(module);
}

}  // namespace chainrule
