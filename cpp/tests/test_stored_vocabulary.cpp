#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "checks.hpp"
#include "ngram/format/model_file.hpp"
#include "ngram/format/stored_vocabulary.hpp"
#include "random_tables.hpp"

namespace chainrule::tests {

namespace {

void names_are_found_by_id_and_by_word() {
    auto names = std::make_shared<WordList>();
    std::vector<std::string> words{"",  "a",    "eight888", "nine99999", "a\tb", std::string("a\0", 2),
                                   "ä", "<unk>"};
    for (int i = 0; i < 3000; ++i) words.push_back((i % 2 ? "w" : "a rather long word ") + std::to_string(i));
    words.push_back("a");  // duplicate: the first one is returned
    for (const std::string& word : words) names->add(word);
    const auto levels = random_tables(1, static_cast<std::uint32_t>(words.size()), {}, 1);
    const FileMetadata metadata = metadata_of(levels);
    const Scratch scratch;
    write_model(scratch.name(), metadata, vocabulary_sections(names), 2);
    const StoredVocabulary stored(ModelFile::open(scratch.name(), false, 0));
    bool is_same = stored.size() == words.size();
    for (std::uint32_t i = 0; i < words.size(); ++i) {
        is_same = is_same && stored.name(i) == words[i];
        is_same = is_same && stored.find(words[i]) == (i + 1 == words.size() ? 1 : i);
    }
    check(is_same, "names");
    check(stored.find("b") == -1 && stored.find("a rather long word 1") == -1 && stored.find("eight88") == -1,
          "absent words");
    check_fails([&] { stored.name(static_cast<std::uint32_t>(words.size())); }, "there is no word");
    check(stored.list().letters() == names->letters() && stored.list().begins() == names->begins(),
          "the list");
    check(StoredVocabulary(ModelFile::of(model_image(metadata, {}, 1))).find("a") == -1, "no names");
    const FileMetadata fewer = metadata_of(random_tables(1, 5, {}, 1));
    check_fails([&] { StoredVocabulary(ModelFile::of(model_image(fewer, vocabulary_sections(names), 1))); },
                "words do not fit");
}

void hostile_names() {
    auto names = std::make_shared<WordList>();
    for (int i = 0; i < 9; ++i) names->add("a rather long word " + std::to_string(i));
    const FileMetadata metadata = metadata_of(random_tables(1, 9, {}, 1));
    Random random(3);
    for (int times = 0; times < 200; ++times) {
        std::vector<Section> sections = vocabulary_sections(names);
        const std::size_t which = 1 + static_cast<std::size_t>(times) % 2;
        const auto fill = sections[which].fill;
        sections[which].fill = [&](std::uint64_t from, std::uint64_t size, char* into) {
            fill(from, size, into);
            for (int i = 0; i < 8; ++i)
                into[random.below(static_cast<std::uint32_t>(size))] ^= static_cast<char>(random.next());
        };
        const StoredVocabulary stored(ModelFile::of(model_image(metadata, sections, 1)));
        for (std::uint32_t i = 0; i < 9; ++i) {
            try {
                static_cast<void>(std::string(stored.name(i)).size());
            } catch (const Error&) {
            }
            try {
                check(stored.find(names->name(i)) < 9, "a number of a word");
            } catch (const Error&) {
            }
        }
    }
}

}  // namespace

static void test_stored_vocabulary() {
    names_are_found_by_id_and_by_word();
    hostile_names();
}

static const Test registered("stored_vocabulary", test_stored_vocabulary);

}  // namespace chainrule::tests
