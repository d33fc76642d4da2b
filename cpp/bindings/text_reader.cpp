// Python bindings of TextReader: inputs are Python functions that return bytes, or rows of a column.
#include "text/input/text_reader.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"

namespace nb = nanobind;

namespace chainrule {

namespace {

// Bytes of an object with the buffer protocol, as long as this object exists.
class Bytes {
  public:
    explicit Bytes(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) nb::raise_python_error();
    }
    ~Bytes() { PyBuffer_Release(&buffer_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    std::string_view view() const {
        return {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
    }

  private:
    Py_buffer buffer_;
};

// Appends the rows of a column: (N + 1,) offsets into the bytes.
void append_rows(const nb::tuple& rows, TextBlock& block) {
    const auto array = nb::cast<AnyArray>(rows[0]);
    const std::span<const std::int64_t> offsets = checked_span<std::int64_t>(array, "offsets", "int64");
    const Bytes data(rows[1]);
    const std::string_view bytes = data.view();
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (offsets.empty() || !std::is_sorted(offsets.begin(), offsets.end()) || offsets.front() < 0 ||
        offsets.back() > size)
        throw ArgumentError("the offsets are not those of the bytes");
    const auto first = static_cast<std::size_t>(offsets.front());
    block.bytes.append(bytes.substr(first, static_cast<std::size_t>(offsets.back()) - first));
    for (const std::int64_t end : offsets.subspan(1))
        block.ends.push_back(static_cast<std::uint64_t>(end) - first);
}

TextFormat format_of(const std::string& name) {
    if (name == "lines") return TextFormat::lines;
    if (name == "json") return TextFormat::json;
    if (name == "documents") return TextFormat::documents;
    if (name == "text") return TextFormat::text;
    throw ArgumentError("the format is '" + name + "'; choose lines, json, documents or text");
}

// (format, offset, first, read)
TextInput input_of(const nb::tuple& input) {
    const TextFormat format = format_of(nb::cast<std::string>(input[0]));
    const nb::object read = input[3];
    const auto append = [read, format](TextBlock& block) {
        const nb::gil_scoped_acquire held;
        const nb::object result = read();
        if (result.is_none()) return false;
        if (format == TextFormat::documents) {
            append_rows(nb::cast<nb::tuple>(result), block);
        } else {
            block.bytes += Bytes(result).view();
        }
        return true;
    };
    return {format, nb::cast<std::uint64_t>(input[1]), nb::cast<std::uint64_t>(input[2]), append};
}

TextOptions options_of(const std::string& column, bool drops_blank_lines, std::size_t block,
                       std::size_t longest, const nb::object& convert) {
    TextOptions options;
    options.column = column;
    options.drops_blank_lines = drops_blank_lines;
    options.block = std::max<std::size_t>(block, 1);
    if (longest) options.longest = longest;
    options.convert = [convert](const TextBlock& converted) {
        const nb::gil_scoped_acquire held;
        const nb::bytes bytes(converted.bytes.data(), converted.bytes.size());
        const auto result = nb::cast<nb::tuple>(
            convert(converted.input, converted.offset, converted.first, bytes, converted.ends));
        return std::pair(std::string(Bytes(result[0]).view()), nb::cast<std::uint64_t>(result[1]));
    };
    return options;
}

nb::object next_lines(TextReader& reader) {
    std::optional<std::string> lines;
    std::int64_t count = 0;
    {
        const nb::gil_scoped_release free;
        lines = reader.next_lines();
        if (lines) count = std::count(lines->begin(), lines->end(), '\n');
    }
    if (!lines) return nb::none();
    return nb::make_tuple(count, nb::bytes(lines->data(), lines->size()));
}

}  // namespace

void bind_text_reader(nb::module_& module) {
    nb::class_<TextReader>(
        module, "TextReader",
        "A text in pieces of whole lines; it is read once, by one of the functions below or "
        "by next_lines.")
        .def(
            "__init__",
            [](TextReader* self, const std::vector<nb::tuple>& inputs, const std::string& column,
               bool drops_blank_lines, std::size_t block, std::size_t longest, const nb::object& convert) {
                std::vector<TextInput> sources;
                for (const nb::tuple& input : inputs) sources.push_back(input_of(input));
                new (self) TextReader(std::move(sources),
                                      options_of(column, drops_blank_lines, block, longest, convert));
            },
            nb::arg("inputs"), nb::arg("column"), nb::arg("drops_blank_lines"), nb::arg("block"),
            nb::arg("longest"), nb::arg("convert"),
            "Inputs are tuples (format, offset, first, read); read() returns the next bytes (lines, json, "
            "text) or "
            "a tuple (offsets, bytes) of rows (documents), and None at the end. convert(input, offset, "
            "first, "
            "bytes, ends) returns the lines of a block that is not plain and the number of replaced "
            "sequences, or "
            "raises. A line of more than `longest` bytes (0: no limit) is not read.")
        .def("next_lines", &next_lines,
             "The next lines: their number and their bytes, with LF after each line; None at the end.")
        .def_prop_ro("replaced", &TextReader::replaced, "Number of invalid sequences replaced so far.");
}

}  // namespace chainrule
