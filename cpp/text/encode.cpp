#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "text/measure.hpp"
#include "text/number_file.hpp"
#include "text/scan.hpp"
#include "text/words.hpp"

namespace chainrule {

namespace {

// Where the ids of each piece go, and how much text there is.
struct Plan {
    std::vector<std::uint64_t> begins{0};
    Extent whole;
};

std::optional<Plan> plan(const PlainText& text, const Splitting& splitting, std::size_t threads) {
    std::vector<Extent> extents(text.pieces());
    std::vector<std::uint64_t> tokens(text.pieces());
    const auto measure = [&](std::size_t, std::size_t piece, std::string_view lines) {
        extents[piece] = extent_of(lines);
        std::string buffer;
        tokens[piece] =
            splitting.is_on ? extent_of(splitting.apply(lines, buffer)).tokens() : extents[piece].tokens();
    };
    if (!for_each_piece(text, threads, measure)) return {};
    Plan made;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        made.whole.words += extents[i].words;
        made.whole.lines += extents[i].lines;
        made.whole.letters += extents[i].letters;
        made.whole.characters += extents[i].characters;
        made.begins.push_back(made.begins.back() + tokens[i]);
    }
    return made;
}

// What only the second reading tells of a piece.
struct Told {
    std::vector<std::uint32_t> unknown;  // numbers in the table of the thread that read it
    std::uint32_t thread = 0;
    std::uint64_t filled = 0;  // lines that have words
};

// Ids to `into`; false where there are more or fewer than it holds: the file is not what it was.
bool encode_piece(std::string_view lines, const Coding& coding, std::span<std::int32_t> into,
                  WordTable& spelled, Told& told) {
    std::size_t at = 0;
    bool is_empty = true;
    const auto push = [&](std::int32_t id) {
        if (at < into.size()) into[at] = id;
        ++at;
    };
    const auto on_word = [&](const Word& word) {
        const std::uint32_t number = coding.words.find(word);
        const std::int32_t id = number == WordTable::kNone ? coding.unknown : coding.ids[number];
        push(id);
        is_empty = false;
        if (id == coding.unknown) told.unknown.push_back(spelled.add(word));
    };
    scan_words(lines, on_word, [&] {
        push(coding.end);
        told.filled += !is_empty;
        is_empty = true;
    });
    return at == into.size();
}

// Words of a line stand one blank apart, and an LF ends it.
Measures measures_of(const Extent& whole, const std::vector<Told>& told) {
    std::uint64_t between = whole.words + whole.lines;
    for (const Told& piece : told) between -= piece.filled;
    return {whole.words, whole.lines, whole.characters + between, whole.letters + between};
}

}  // namespace

std::optional<EncodedText> encode_words(const PlainText& text, const Coding& coding, const std::string& file,
                                        std::size_t threads) {
    const std::optional<Plan> planned = plan(text, coding.splitting, threads);
    if (!planned) return {};
    EncodedText made;
    made.spelled.resize(std::max<std::size_t>(threads, 1));
    std::optional<NumberOutput> output;
    if (file.empty()) {
        made.ids = Array<std::int32_t>(planned->begins.back());
    } else {
        output.emplace(file);
    }
    std::vector<Told> told(text.pieces());
    std::atomic<bool> is_same{true};
    const auto encode = [&](std::size_t thread, std::size_t piece, std::string_view lines) {
        const std::uint64_t begin = planned->begins[piece], size = planned->begins[piece + 1] - begin;
        std::vector<std::int32_t> own(output ? size : 0);
        const std::span<std::int32_t> into =
            output ? std::span(own) : std::span(made.ids.data() + begin, size);
        told[piece].thread = static_cast<std::uint32_t>(thread);
        std::string buffer;
        if (!encode_piece(coding.splitting.apply(lines, buffer), coding, into, made.spelled[thread],
                          told[piece]))
            is_same = false;
        if (output) output->write(begin, own);
    };
    if (!for_each_piece(text, threads, encode) || !is_same) return {};
    if (output) output->close();
    made.measures = measures_of(planned->whole, told);
    for (const Told& piece : told) {
        for (const std::uint32_t number : piece.unknown) made.spellings.emplace_back(piece.thread, number);
    }
    return made;
}

}  // namespace chainrule
