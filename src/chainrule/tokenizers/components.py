r"""Components of a `tokenizer.json`: those of each kind, and the allow-list checked before a file is loaded.

The library executes whatever a file specifies: truncation, padding, normalizers that expand text without bound, any
regular expression. Only the components in the tables below are loaded: those written by chainrule and those in the
files of GPT-2, GPT-NeoX and BERT (docs/tokenizers.md).
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, models, normalizers

from chainrule.errors import ModelFileError
from chainrule.storage import strict_json
from chainrule.tokenizers.config import BOS, EOS, JOINER, TokenizerConfig

BLANKS: Final = "[ \t]+"
ANY_CHARACTER: Final = r"[\s\S]"
TURKISH: Final = {"I\u0307": "i", "\u0130": "i", "I": "\u0131"}
"""Capitals with a different lower case in Turkish and Azerbaijani, in the order of replacement."""
LONGEST_WORDPIECE_WORD: Final = 200
"""Bytes; the time of WordPiece is cubic in the length of a word, so longer words are unknown."""
LONGEST_SEQUENCE: Final = 8
HIGHEST_SCORE: Final = 1e6
"""Largest magnitude of a Unigram score (a natural log-probability)."""

Check = Callable[[Any], bool]


class _Refused(ValueError):
    """Error in a file; the message does not contain the file name."""


@contextmanager
def _naming(source: str) -> Iterator[None]:
    try:
        yield
    except _Refused as error:
        raise ModelFileError(f"{source} {error}") from error


def _one_of(*allowed: Any) -> Check:
    return lambda value: any(type(value) is type(other) and value == other for other in allowed)


def _is_int(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_any(value: Any) -> bool:
    return True


def _is_symbol(value: Any) -> bool:
    """Whether the value is a symbol and its id, as in `["[SEP]", 102]`."""
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and _is_int(value[1])


def _is_template(value: Any) -> bool:
    """Whether the value is a template of a post-processor: special tokens and the sequences A and B."""
    return isinstance(value, list) and len(value) <= LONGEST_SEQUENCE and all(map(_is_template_piece, value))


def _is_template_piece(piece: Any) -> bool:
    match piece:
        case {"SpecialToken": {"id": str(), "type_id": type_id}} | {
            "Sequence": {"id": "A" | "B", "type_id": type_id}
        }:
            return len(piece) == 1 and _is_int(type_id)
        case _:
            return False


def _is_symbol_table(value: Any) -> bool:
    """Whether the value gives each special token of a template one id and one symbol."""
    if not isinstance(value, dict) or len(value) > LONGEST_SEQUENCE:
        return False
    return all(
        isinstance(entry, dict)
        and entry.keys() == {"id", "ids", "tokens"}
        and entry["id"] == name
        and isinstance(entry["ids"], list)
        and len(entry["ids"]) == 1
        and _is_int(entry["ids"][0])
        and entry["tokens"] == [name]
        for name, entry in value.items()
    )


_is_bool = _one_of(True, False)
_is_false = _one_of(False)
_is_empty = _one_of(None, "")

_BYTE_LEVEL: Final[Mapping[str, Check]] = {
    "add_prefix_space": _is_bool,
    "trim_offsets": _is_bool,
    "use_regex": _is_bool,
}
COMPONENTS: Final[Mapping[str, Mapping[str, Mapping[str, Check]]]] = {
    "normalizer": {
        "Lowercase": {},
        "Replace": {
            "pattern": _one_of(*({"String": upper} for upper in TURKISH)),
            "content": _one_of(*TURKISH.values()),
        },
        "NFC": {},
        "BertNormalizer": {
            "clean_text": _is_bool,
            "handle_chinese_chars": _is_bool,
            "strip_accents": _one_of(None, True, False),
            "lowercase": _is_bool,
        },
    },
    "pre_tokenizer": {
        "Split": {
            "pattern": _one_of({"Regex": BLANKS}, {"Regex": ANY_CHARACTER}),
            "behavior": _one_of("Removed", "Isolated"),
            "invert": _is_false,
        },
        "ByteLevel": _BYTE_LEVEL,
        "BertPreTokenizer": {},
    },
    "post_processor": {
        "ByteLevel": _BYTE_LEVEL,
        "BertProcessing": {"sep": _is_symbol, "cls": _is_symbol},
        "TemplateProcessing": {
            "single": _is_template,
            "pair": _is_template,
            "special_tokens": _is_symbol_table,
        },
    },
    "decoder": {
        "ByteLevel": _BYTE_LEVEL,
        "WordPiece": {"prefix": _one_of("##", JOINER), "cleanup": _is_bool},
        "Fuse": {},
        "Replace": {
            "pattern": _one_of({"String": " "}, {"String": JOINER + " "}),
            "content": _one_of("Ġ", ""),
        },
    },
    "model": {
        "WordLevel": {"vocab": _is_any, "unk_token": _is_text},
        "BPE": {
            "vocab": _is_any,
            "merges": _is_any,
            "dropout": _one_of(None),
            "unk_token": lambda value: value is None or _is_text(value),
            "continuing_subword_prefix": _is_empty,
            "end_of_word_suffix": _is_empty,
            "fuse_unk": _is_false,
            "byte_fallback": _is_false,
            "ignore_merges": _is_false,
        },
        "WordPiece": {
            "vocab": _is_any,
            "unk_token": _is_text,
            "continuing_subword_prefix": _one_of("##"),
            "max_input_chars_per_word": lambda value: _is_int(value) and 1 <= value <= LONGEST_WORDPIECE_WORD,
        },
        "Unigram": {
            "vocab": _is_any,
            "unk_id": lambda value: value is None or _is_int(value),
            "byte_fallback": _is_false,
        },
    },
}
"""Allowed fields by stage and component type, each with a check of its value."""

SEQUENCES: Final = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
"""Stages that allow a Sequence of components, and the name of its list."""

_ADDED_TOKEN: Final[Mapping[str, Check]] = {
    "id": _is_int,
    "content": lambda value: _is_text(value) and value != "",
    "single_word": _is_false,
    "lstrip": _is_false,
    "rstrip": _is_false,
    "normalized": _is_bool,
    "special": _is_bool,
}

_SPLIT_BLANKS: Final = {"type": "Split", "pattern": {"Regex": BLANKS}, "behavior": "Removed", "invert": False}
_SPLIT_ALL: Final = {"type": "Split", "pattern": {"Regex": ANY_CHARACTER}, "behavior": "Isolated", "invert": False}
_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_WORDS_OF_BYTES: Final = {**_BYTES, "use_regex": True}
_DECODE_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
# The WordPiece decoder writes a blank before each word; as Ġ it survives the byte-level decoder.
_DECODE_PIECES: Final = {
    "type": "Sequence",
    "decoders": [
        {"type": "WordPiece", "prefix": "##", "cleanup": False},
        {"type": "Replace", "pattern": {"String": " "}, "content": "Ġ"},
        {"type": "Fuse"},
        _DECODE_BYTES,
    ],
}
# For programs that use the `tokenizers` library directly.
_DECODE_JOINED: Final = {
    "type": "Sequence",
    "decoders": [
        {"type": "WordPiece", "prefix": JOINER, "cleanup": False},
        {"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": JOINER + " "}, "content": ""},
    ],
}
KINDS: Final[Mapping[str, tuple[str, Any, Any]]] = {
    "word": ("WordLevel", _SPLIT_BLANKS, _DECODE_JOINED),
    "whitespace": ("WordLevel", _SPLIT_BLANKS, None),
    "char": ("WordLevel", _SPLIT_ALL, {"type": "Fuse"}),
    "byte": ("BPE", _BYTES, _DECODE_BYTES),
    "bpe": ("BPE", _WORDS_OF_BYTES, _DECODE_BYTES),
    "unigram": ("Unigram", _WORDS_OF_BYTES, _DECODE_BYTES),
    "wordpiece": ("WordPiece", {"type": "Sequence", "pretokenizers": [_SPLIT_BLANKS, _BYTES]}, _DECODE_PIECES),
}
"""Model, pre-tokenizer and decoder of each kind trained by chainrule."""


def check(text: str, source: str = "tokenizer.json") -> dict[str, Any]:
    """Parse a `tokenizer.json`; raise ModelFileError for components that are not on the allow-list.

    Ids must run from 0 without gaps or duplicates, merges must join two symbols of the vocabulary to a third, and
    the ids of added tokens must continue or repeat those of the model.
    """
    with _naming(source):
        content = _parse(text)
        _check_stages(content)
        _check_added(content.get("added_tokens"), _symbols(content["model"]))
    return content


def _check_stages(content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        if name in ("truncation", "padding") and value is not None:
            raise _Refused(f"asks for {name}, which changes tokens and is not supported")
        if name not in ("version", "added_tokens", *COMPONENTS) and value is not None:
            raise _Refused(f"has a field {name!r:.40} that chainrule does not know")
    if content.get("version") != "1.0":
        raise _Refused(f"has version {content.get('version')!r:.40}; chainrule reads 1.0")
    for stage in COMPONENTS:
        _check_component(stage, content.get(stage))


def check_kind(
    content: Mapping[str, Any], config: TokenizerConfig, alphabet: Mapping[str, int], source: str = "tokenizer.json"
) -> None:
    """Raise ModelFileError unless the components are those written by chainrule for the kind of the config.

    `alphabet` maps the characters that represent the 256 bytes to the bytes.
    """
    with _naming(source):
        model_type, model = KINDS[config.kind][0], content["model"]
        for stage, component in _stages(config).items():
            if _with_defaults(content.get(stage)) != component:
                raise _Refused(f"has another {stage} than the {config.kind} tokenizer of its config")
        if _model_type(model) != model_type:
            raise _Refused(f"has a {_model_type(model)} model, but its config says {config.kind}")
        added = [(token["content"], token["special"], token["normalized"]) for token in content["added_tokens"]]
        symbols = _symbols(model)
        if added != [(BOS, True, False), (EOS, True, False)] or BOS in symbols or EOS in symbols:
            raise _Refused(f"must add {BOS} and {EOS} to its vocabulary, and no other symbol")
        unk = model.get("unk_token") if model_type != "Unigram" else model.get("unk_id")
        if unk != (None if config.is_lossless else config.unk):
            raise _Refused(f"has {unk!r:.40} for unknown words, but its config says {config.unk!r}")
        if config.kind == "char" and any(len(symbol) != 1 for symbol in symbols if symbol != config.unk):
            raise _Refused("has symbols of several characters, but its config says char")
        if not config.tokens_are_text:
            _check_bytes(symbols, config, alphabet)
        if config.kind == "byte" and model.get("merges"):
            raise _Refused("has merges, but its config says byte")


def make_backend(config: TokenizerConfig, model: models.Model) -> tokenizers.Tokenizer:
    """Return a tokenizer of the library with this model and the other components of the kind of the config."""
    untrained = {"type": "BPE", "vocab": {}, "merges": []}
    content = {"version": "1.0", "added_tokens": [], **_stages(config), "model": untrained}
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    backend.model = model
    return backend


def make_normalizer(config: TokenizerConfig) -> normalizers.Normalizer | None:
    """Return the normalizer that lower-cases the text; None without `lowercase`."""
    normalizer: normalizers.Normalizer | None = make_backend(config, models.BPE()).normalizer
    return normalizer


def word_level_json(config: TokenizerConfig, words: int) -> tuple[bytes, bytes]:
    """Return the bytes of the `tokenizer.json` of a vocabulary of `words` words before and after its entries.

    The entries are those of `WordVocabulary.json_entries`; together they are what the library writes.
    """
    content = copy.deepcopy(_empty_word_level(config))
    for position, token in enumerate(content["added_tokens"]):
        token["id"] = words + position
    text = json.dumps(content, indent=2, ensure_ascii=False)
    split = text.rindex('"vocab": {}') + len('"vocab": {')
    return f"{text[:split]}\n".encode(), f"    {text[split:]}".encode()


@lru_cache
def _empty_word_level(config: TokenizerConfig) -> dict[str, Any]:
    """Return the `tokenizer.json` of a word-level tokenizer without words, as the library writes it."""
    backend = make_backend(config, models.WordLevel({config.unk: 0}, unk_token=config.unk))
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (BOS, EOS)])
    content: dict[str, Any] = json.loads(backend.to_str(pretty=True))
    content["model"]["vocab"] = {}
    return content


def _stages(config: TokenizerConfig) -> dict[str, Any]:
    """Return the components around the model."""
    _, pre_tokenizer, decoder = KINDS[config.kind]
    normalizer = _normalizer(config)
    return {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder}


def _normalizer(config: TokenizerConfig) -> dict[str, Any] | None:
    lower = {"type": "Lowercase"} if config.lowercase else None
    if lower is None or not config.locale:
        return lower
    replaced = [
        {"type": "Replace", "pattern": {"String": upper}, "content": content} for upper, content in TURKISH.items()
    ]
    return {"type": "Sequence", "normalizers": [*replaced, lower]}


def _check_bytes(symbols: Mapping[str, int], config: TokenizerConfig, alphabet: Mapping[str, int]) -> None:
    """Raise unless every byte is a symbol and every symbol consists of bytes."""
    prefixes = ("", "##") if config.kind == "wordpiece" else ("",)
    if missing := [prefix + byte for prefix in prefixes for byte in alphabet if prefix + byte not in symbols]:
        raise _Refused(f"has no symbol {missing[0]!r}: some text would be lost")
    for symbol in symbols:
        if symbol != config.unk and not (symbol and all(character in alphabet for character in symbol)):
            raise _Refused(f"has a symbol {symbol!r:.40} that is not in the byte alphabet")


def _parse(text: str) -> dict[str, Any]:
    try:
        content = strict_json.parse(text)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"is not a tokenizer: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise _Refused("is not a tokenizer: it has no model")
    return content


def _model_type(model: Mapping[str, Any]) -> Any:
    """Return the type of a model; GPT-2 files omit it but have merges."""
    return model.get("type", "BPE" if "merges" in model else None)


def _check_component(stage: str, component: Any, *, may_be_sequence: bool = True) -> None:
    if component is None and stage != "model":
        return
    allowed = COMPONENTS[stage]
    kind = component.get("type") if isinstance(component, dict) else component
    if stage == "model":
        kind = _model_type(component)
    if kind == "Sequence" and stage in SEQUENCES and may_be_sequence:
        parts = component.get(SEQUENCES[stage])
        if not isinstance(parts, list) or len(parts) > LONGEST_SEQUENCE or None in parts or len(component) != 2:
            raise _Refused(f"has a {stage} Sequence that is not a short list of components")
        for part in parts:
            _check_component(stage, part, may_be_sequence=False)
        return
    if not isinstance(component, dict) or not isinstance(kind, str) or kind not in allowed:
        raise _Refused(f"has {stage} {kind!r:.40}, which chainrule does not load; allowed: {', '.join(allowed)}")
    for name, value in component.items():
        if name == "type" or (name not in allowed[kind] and value is None):
            continue
        if name not in allowed[kind] or not allowed[kind][name](value):
            raise _Refused(
                f"has {stage} {kind} with {name[:40]} {json.dumps(value)[:60]}, "
                "which chainrule does not load; see docs/tokenizers.md"
            )


def _symbols(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the symbols of a model with their ids, 0 to n − 1."""
    vocabulary = model.get("vocab")
    if _model_type(model) == "Unigram":
        symbols = _unigram_symbols(vocabulary)
        if model.get("unk_id") is not None and model["unk_id"] >= len(symbols):
            raise _Refused(f"has unk_id {model['unk_id']} and {len(symbols)} symbols")
        return symbols
    if not isinstance(vocabulary, dict) or not vocabulary or not all(map(_is_int, vocabulary.values())):
        raise _Refused("has a vocabulary that is not a table of symbols and whole numbers")
    ids = set(vocabulary.values())
    if len(ids) < len(vocabulary):
        raise _Refused("gives one id to two symbols")
    if max(ids) >= len(ids):
        raise _Refused(f"contains the id {max(ids)} but only {len(ids)} symbols")
    if model.get("unk_token") is not None and model["unk_token"] not in vocabulary:
        raise _Refused(f"has no '{model['unk_token'][:40]}', its symbol for unknown words")
    if _model_type(model) == "BPE":
        _check_merges(model.get("merges"), vocabulary)
    return vocabulary


def _unigram_symbols(vocabulary: Any) -> dict[str, int]:
    symbols: dict[str, int] = {}
    for entry in vocabulary if isinstance(vocabulary, list) else ():
        match entry:
            case [str(symbol), float() | int() as score] if symbol and type(score) is not bool:
                is_score = math.isfinite(score) and abs(score) <= HIGHEST_SCORE
            case _:
                is_score = False
        if not is_score or symbol in symbols:
            raise _Refused(
                f"has the invalid vocabulary entry {json.dumps(entry)[:60]}; expected a symbol and its score"
            )
        symbols[symbol] = len(symbols)
    if not symbols:
        raise _Refused("has a Unigram model without symbols")
    return symbols


def _check_merges(merges: Any, vocabulary: Mapping[str, int]) -> None:
    """Check that merges are pairs of symbols, given as lists or, in older files, as `left right` strings."""
    if not isinstance(merges, list):
        raise _Refused("has merges that are not a list")
    pairs = set()
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(map(_is_text, pair))
        if not is_pair or any(symbol not in vocabulary for symbol in (*pair, "".join(pair))):
            raise _Refused(f"merges {json.dumps(merge)[:60]}, which are not symbols of its vocabulary")
        pairs.add(tuple(pair))
    if len(pairs) < len(merges):
        raise _Refused("has the same merge twice")


def _check_added(added: Any, symbols: Mapping[str, int]) -> None:
    """Check that each added token has the id of its symbol in the model, or a new id after those of the model."""
    if not isinstance(added, list):
        raise _Refused("has no list of added tokens")
    new: set[int] = set()
    contents: set[str] = set()
    for token in added:
        if not isinstance(token, dict) or token.keys() != _ADDED_TOKEN.keys():
            raise _Refused(f"has an added token {json.dumps(token)[:60]}, not of the usual form")
        for name, value in token.items():
            if not _ADDED_TOKEN[name](value):
                raise _Refused(
                    f"has an added token with {name} {json.dumps(value)[:60]}, "
                    "which chainrule does not load; see docs/tokenizers.md"
                )
        if symbols.get(token["content"], token["id"]) != token["id"] or token["content"] in contents:
            raise _Refused(f"gives the added token {token['content']!r:.40} two ids or two entries")
        contents.add(token["content"])
        if token["content"] not in symbols:
            new.add(token["id"])
    count = sum(content not in symbols for content in contents)
    if new != set(range(len(symbols), len(symbols) + count)):
        raise _Refused("has added tokens whose ids do not follow those of the model")


def _with_defaults(component: Any) -> Any:
    """Add the default fields that older files omit."""
    if isinstance(component, dict) and component.get("type") == "ByteLevel":
        return {"use_regex": True, **component}
    if isinstance(component, dict) and component.get("type") == "Sequence":
        return {key: [*map(_with_defaults, v)] if isinstance(v, list) else v for key, v in component.items()}
    return component
