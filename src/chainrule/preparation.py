"""A training text made ready for any family: tokenizer, ids, speller, fingerprint. Nothing here is a model."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chainrule import artifact
from chainrule.data.encoded import Encoded
from chainrule.errors import ConfigError, InputError
from chainrule.ngram.spelling import Speller, train_speller
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint, fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer, split_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What every model of one text shares."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded | None
    speller: Speller | None
    fingerprint: Fingerprint


def prepare(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None = None,
    progress: Progress = silent,
) -> Prepared:
    """Train or load the tokenizer, encode, learn to spell; the vocabulary sees `corpus` alone."""
    if isinstance(tokenizer, Path):
        made = artifact.load_tokenizer(tokenizer)
    else:
        made = tokenizer_training.train(corpus, tokenizer, progress)
    train = encode(corpus, made, progress)
    if not train.words:
        raise InputError("the training text holds no words, only blank lines or nothing; give a text with words")
    if made.config.closed and train.oov:
        raise ConfigError(f"--closed, but the tokenizer does not know '{train.spellings[0]}' of the training text")
    return Prepared(
        tokenizer=made,
        train=train,
        valid=None if valid is None else encode(valid, made, progress),
        speller=_speller(corpus, made, train, progress),
        fingerprint=fingerprint(corpus),
    )


def _speller(corpus: Corpus, tokenizer: Tokenizer, train: Encoded, progress: Progress) -> Speller | None:
    """Learnt on what the vocabulary leaves out, or on the words met once where it leaves out nothing."""
    if tokenizer.unk is None or tokenizer.config.closed:
        return None
    progress("learning to spell", 0, None)
    unknown = train.spellings
    if not unknown:
        counts = Counter(unit for line in corpus for unit in _units(tokenizer, line))
        once = [unit for unit, times in counts.items() if times == 1]
        unknown = once or list(counts)
    is_single = tokenizer.config.kind == "char"
    return train_speller(unknown, list(_known(tokenizer)), is_single)


def _units(tokenizer: Tokenizer, line: str) -> list[str]:
    seen = tokenizer.see(line)
    return list(seen) if tokenizer.config.kind == "char" else split_words(seen)


def _known(tokenizer: Tokenizer) -> Iterator[str]:
    """What an unknown word cannot be; pieces are no words, so WordPiece rules nothing out."""
    if tokenizer.config.kind in ("word", "char"):
        control = (tokenizer.bos, tokenizer.eos, tokenizer.unk)
        ids = [i for i in range(tokenizer.vocab_size) if i not in control]
        yield from tokenizer.tokens(ids)
