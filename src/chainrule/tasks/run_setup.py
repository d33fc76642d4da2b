"""Start of a training run, shared by all tasks: identity of its checkpoint, provenance and tokenizer."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chainrule.api import resolve_tokenizer
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.storage.provenance import Origin
from chainrule.storage.verified_dir import JSON
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.tokenizer import Tokenizer


def identify(
    options: RunOptions,
    task: str,
    config: Any,
    texts: Sequence[Sequence[str]],
    tokenizers: Sequence[Tokenizer],
    initial_weights_digest: str = "",
) -> RunOptions:
    """Add the identity that a checkpoint of the task must match.

    `initial_weights_digest` identifies pretrained weights; empty if there are none.
    """
    return options.with_identity(
        {"task": task},
        config,
        [digest_texts(lines) for lines in texts],
        [digest_texts([tokenizer.to_json()]) for tokenizer in tokenizers],
        seed=options.seed,
        **({"begun": initial_weights_digest} if initial_weights_digest else {}),
    )


def make_origin(options: RunOptions, task: str, name: str, sha256: str) -> Origin:
    """Provenance of the model; raises if `out` contains a finished model of another text."""
    fingerprint = Fingerprint(sha256)
    command = options.command or f"chainrule.tasks.{task}.train(…)"
    if options.out is not None and not options.resume:
        provenance: dict[str, JSON] = {"command": options.command, "training_text": {"sha256": sha256}}
        verified_dir.check_replace(options.out, provenance, force=options.force)
    return Origin.now(text=name, fingerprint=fingerprint, command=command, seed=options.seed, run=options.out)


def digest_texts(lines: Sequence[str]) -> str:
    """SHA-256 of length-prefixed texts, so that line breaks inside a text are unambiguous."""
    sha256 = hashlib.sha256()
    for line in lines:
        content = line.encode()
        sha256.update(f"{len(content)}\n".encode() + content)
    return sha256.hexdigest()


def make_tokenizer(
    lines: Sequence[str],
    tokenizer: str | Path,
    tokenizer_settings: Mapping[str, object],
    progress: Progress | bool = silent,
) -> Tokenizer:
    """Train a tokenizer of the given kind on `lines`, or load it from a folder."""
    progress = as_progress(progress)
    choice = resolve_tokenizer(tokenizer, tokenizer_settings)
    if isinstance(choice, Path):
        from chainrule.tokenizers.tokenizer import load_tokenizer

        return load_tokenizer(choice)
    trained = tokenizer_training.train(Corpus.from_lines(list(lines)), choice, progress)
    warn_if_all_unknown(trained)
    return trained


def warn_if_all_unknown(tokenizer: Tokenizer) -> None:
    """Warn if the vocabulary contains only the unknown word."""
    if not tokenizer.vocab.keys() - {tokenizer.config.unk}:
        message = f"the vocabulary is {tokenizer.config.unk} alone: no word is frequent enough, so all are unknown"
        warnings.warn(
            f"{message}; lower min_count, {tokenizer.config.min_count} now", ChainruleWarning, stacklevel=3
        )
