"""`chainrule.inspect`: models looked into on one text, section by section.

Lives here: which sections there are, who is asked what. Not here: a section's own question (one file each), the
whole of the answers (inspection.py).
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

from chainrule import families, loading
from chainrule.artifact import use_of
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, UsageError
from chainrule.inspection import plots
from chainrule.inspection.foreign import plain_text
from chainrule.inspection.section import Section
from chainrule.microscope.inspection import Inspection, Subject
from chainrule.microscope.sample import Sample, take
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.default import default_corpus
from chainrule.text.files import Sources
from chainrule.text.pairs import Pairs, read_pairs
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.versions import versions

MODULES: Final[Mapping[str, str]] = {
    "gradient_flow": "chainrule.microscope.flow",
    "recurrent_matrix": "chainrule.microscope.matrix",
    "gates": "chainrule.microscope.gates",
    "attention": "chainrule.microscope.attention",
    "probability": "chainrule.microscope.probability",
    "training": "chainrule.microscope.training",
}
"""The sections in the order of the page; each module offers `section`, and is imported when it is asked."""

NOTHING: Final = "nothing to say of these models"
PARTS: Final = 100  # steps of the progress bar for a section of work 1
WORK: Final[Mapping[str, int]] = {"gradient_flow": 4, "gates": 2, "attention": 2, "probability": 2}
"""Typical time of a section, in that of the shortest ones, which are not listed."""

Maker = Callable[[Progress], Section | None]


def inspect(
    models: Any,
    text: Sources | Corpus | Pairs | None = None,
    *,
    only: str | Sequence[str] = (),
    tokens: int = 1000,
    lags: int = 100,
    positions: int = 64,
    track: str | Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    progress: Progress | bool = silent,
    command: str = "chainrule.inspect(…)",
) -> Inspection:
    """Look into one model or several, given or in folders, on the first `tokens` of a text.

    Without a text: on the embedded one. A translator is looked into by itself, on sentence pairs: two files, or one
    table. `only` names sections; `lags`, `positions` and `seed` are for the gradient flow; `track` names
    properties of the text to search the cells for.
    """
    progress = as_progress(progress)
    start = time.perf_counter()
    _check_counts({"tokens": tokens, "lags": lags, "positions": positions})
    tracked = (track,) if isinstance(track, str) else tuple(track)
    wanted = _wanted(only, tracked)
    named = _load(models, device)
    if _is_translator(named):
        job = _of_translator(*named[0], text)
    else:
        flow = {"lags": lags, "positions": positions, "seed": seed}
        chosen: dict[str, dict[str, Any]] = {"gradient_flow": flow, "gates": {"track": tracked}}
        job = _of_language_models(named, text, tokens, chosen)
    if find_spec("matplotlib") is None:
        warnings.warn(f"there are no pictures: {plots.MISSING}", ChainruleWarning, stacklevel=2)
    with plots.or_notes():
        sections, left_out = _gather(job, wanted, progress, is_choice=bool(only))
    return Inspection(
        subjects=_with_counts(job, sections),
        text=job.text,
        sections=sections,
        left_out=left_out,
        command=command,
        versions=versions(),
        seconds=time.perf_counter() - start,
        peak_memory=peak_memory(),
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """Who is looked at with what, and how each section is asked for; one that is not here has nothing to say."""

    subjects: tuple[Subject, ...]
    text: str
    makers: Mapping[str, Maker]
    pairs: int | None = None  # that a translator was given


def _of_language_models(
    named: Sequence[tuple[str, Model]],
    text: Sources | Corpus | Pairs | None,
    tokens: int,
    chosen: Mapping[str, Mapping[str, Any]],
) -> _Job:
    if isinstance(text, Pairs):
        raise UsageError("pairs are for translators; give a language model a text")
    corpus = default_corpus() if text is None else Corpus.of(text)
    source = f"{corpus.name}, as no text was given" if text is None else corpus.name
    samples = [take(model, corpus, name=name, tokens=tokens, source=source) for name, model in named]

    def maker(name: str) -> Maker:
        settings = chosen.get(name, {})
        return lambda progress: import_module(MODULES[name]).section(samples, progress=progress, **settings)

    return _Job(tuple(map(_subject, samples)), source, {name: maker(name) for name in MODULES})


def _of_translator(name: str, model: Any, text: Sources | Corpus | Pairs | None) -> _Job:
    if model.config.attention == "none":
        raise UsageError(f"{name} has no attention, and it is by its attention that a translator is looked into")
    if text is None:
        raise UsageError("a translator is looked into on pairs: give a source and a target file, or one table")
    pairs = (
        text
        if isinstance(text, Pairs)
        else read_pairs([file.path for file in Corpus.of(text, expects_lines=False).files])
    )
    config, source, target = model.config, model.source, model.target
    subject = Subject(
        name=name,
        family=f"{config.family} translator",
        sizes={"layers": config.layers, "width": config.hidden},
        parameters=model.parameters,
        tokenizer=_tokenizer(source) if config.joint else f"{_tokenizer(source)}; {_tokenizer(target)}",
        context="pairs",
        trained_on=model.origin.text,
        looked_at="",  # known when it has been done
    )
    makers: dict[str, Maker] = {
        "attention": lambda told: import_module(MODULES["attention"]).of_translator(model, pairs, progress=told)
    }
    return _Job((subject,), pairs.name, makers, len(pairs))


def _with_counts(job: _Job, sections: Sequence[Section]) -> tuple[Subject, ...]:
    """The subjects; a translator with how many of its pairs were read, which its section knows."""
    if job.pairs is None:
        return job.subjects
    read = max((section.data["pairs"] for section in sections), default=0)
    said = f"{read or 'none'} of {job.pairs:,} pair{'' if job.pairs == 1 else 's'}"
    return tuple(replace(subject, looked_at=said) for subject in job.subjects)


def _subject(sample: Sample) -> Subject:
    model = sample.model
    return Subject(
        name=sample.name,
        family=model.family,
        sizes=families.get(model.family).facets(model.config),
        parameters=model.parameters,
        tokenizer=_tokenizer(model.tokenizer),
        context=model.lm.context,
        trained_on=model.origin.text,
        looked_at=f"{len(sample.ids):,} tokens",
    )


def _tokenizer(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.config.kind}, {tokenizer.vocab_size:,} ids"


def _gather(
    job: _Job, wanted: Sequence[str], progress: Progress, *, is_choice: bool
) -> tuple[tuple[Section, ...], dict[str, str]]:
    """Every section that has something to say, and why others are not there; one that fails takes none along."""
    sections: list[Section] = []
    left_out: dict[str, str] = {}
    work = [WORK.get(name, 1) for name in wanted]
    for place, name in enumerate(wanted):
        inner = _within(progress, name.replace("_", " "), sum(work[:place]), work[place], sum(work))
        inner("", 0, None)
        try:
            section = job.makers[name](inner) if name in job.makers else None
        except UsageError:
            raise
        except ChainruleError as error:
            left_out[name] = str(error)
            warnings.warn(f"{name} is left out: {error}", ChainruleWarning, stacklevel=3)
            continue
        if section is not None:
            sections.append(section)
        else:
            left_out[name] = NOTHING
            if is_choice:
                warnings.warn(f"{name} is left out: {NOTHING}", ChainruleWarning, stacklevel=3)
    progress("inspecting", PARTS * sum(work), PARTS * sum(work))
    return tuple(sections), left_out


def _within(progress: Progress, title: str, before: int, work: int, total_work: int) -> Progress:
    """The progress of one of several sections as a part of the whole's: `before` is the work of those before it."""

    def tell(what: str, done: int, total: int | None) -> None:
        part = min(1.0, done / total) if total else 0.0
        done_parts = round(PARTS * (before + part * work))
        progress(f"{title}: {what}" if what else title, done_parts, PARTS * total_work)

    return tell


def _load(models: Any, device: str) -> list[tuple[str, Any]]:
    """The models by names that tell them apart."""
    is_one = isinstance(models, str | Path) or not isinstance(models, Sequence)
    given = [models] if is_one else list(models)
    if not given:
        raise UsageError("no model was given; name the folder of at least one")
    names = unique_names([_parts(model) for model in given])
    loaded = [loading.load(model, device=device) if isinstance(model, str | Path) else model for model in given]
    for model, place in zip(loaded, given, strict=True):
        _check_kind(model, str(place))
    return list(zip(names, loaded, strict=True))


def _parts(model: Any) -> tuple[str, ...]:
    """The folders on the way to a model, or what it is where it comes from none."""
    path = str(model) if isinstance(model, str | Path) else getattr(model, "name", "")
    if path:
        return Path(os.path.abspath(path)).parts
    return (str(getattr(model, "family", getattr(model, "task", "model"))),)


def unique_names(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """The last part of each path, or as many as tell it from the others; what is still the same gets a free number.

    >>> unique_names([("runs", "a", "lstm"), ("runs", "b", "lstm"), ("gru",), ("gru",)])
    ['a/lstm', 'b/lstm', 'gru', 'gru (2)']
    """
    names: list[str] = []
    for path in paths:
        others = [other for other in paths if other != path]
        depths = (n for n in range(1, len(path)) if all(other[-n:] != path[-n:] for other in others))
        names.append(plain_text("/".join(path[-next(depths, len(path)) :])))
    taken = set(names)
    for i, name in enumerate(names):
        if name in names[:i]:
            names[i] = next(other for n in count(2) if (other := f"{name} ({n})") not in taken)
            taken.add(names[i])
    return names


def _check_kind(model: Any, place: str) -> None:
    """Refuse what cannot be looked into; `place` is where it was found."""
    task = getattr(model, "task", None)
    if task not in (None, "translate"):
        reason = "is no language model and no translator, and only these are looked into"
        raise UsageError(f"{place} {reason}; {use_of(str(task), place)}")
    if task is None and not isinstance(model, Model):
        raise UsageError(f"{place} is no model; give a model or the folder of one")


def _is_translator(named: Sequence[tuple[str, Any]]) -> bool:
    """Whether the one model is a translator."""
    is_one = [getattr(model, "task", None) == "translate" for _, model in named]
    if any(is_one) and len(named) > 1:
        raise UsageError("a translator is looked into by itself: give one translator and no other model")
    return any(is_one)


def _wanted(only: str | Sequence[str], track: Sequence[str]) -> list[str]:
    """The sections that are asked for, in the order of the page."""
    listed = only.split(",") if isinstance(only, str) else list(only)
    names = [name.strip().replace("-", "_") for name in listed if name.strip()]
    for name in names:
        if name not in MODULES:
            raise ConfigError(f"there is no section '{name}'; choose among {', '.join(MODULES)}")
    wanted = [name for name in MODULES if name in names or not names]
    if track and "gates" not in wanted:
        raise UsageError("track searches the cells, which is the section gates; add gates to only")
    return wanted


def _check_counts(counts: Mapping[str, int]) -> None:
    for name, number in counts.items():
        if not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name} is {number}; choose a whole number from 1 on")


def peak_memory() -> int | None:
    """The most bytes this process has held at once."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # macOS counts in bytes, others in KiB
