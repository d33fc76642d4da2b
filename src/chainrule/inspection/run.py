"""`chainrule.inspect`: run all inspection sections on one or more models and a text."""

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

from chainrule import api, families
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, UsageError
from chainrule.inspection.report import Inspection, Section, Subject
from chainrule.inspection.text_excerpt import Sample, take_sample
from chainrule.model import Model
from chainrule.plots import figures
from chainrule.plots.html import to_printable
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.provenance import usage_hint
from chainrule.system import versions
from chainrule.text.corpus import Corpus
from chainrule.text.parallel import SentencePairs, read_pairs
from chainrule.text.readers import Sources
from chainrule.text.splits import default_corpus
from chainrule.tokenizers.tokenizer import Tokenizer

SECTIONS: Final = ("gradient_flow", "recurrent_matrix", "gates", "attention", "probability", "training")
"""The sections in page order; each is a module of this package that defines `section`, imported on first use."""

NOT_APPLICABLE: Final = "not applicable to these models"
PROGRESS_STEPS: Final = 100  # progress steps of a section of relative time 1
RELATIVE_TIME: Final[Mapping[str, int]] = {"gradient_flow": 4, "gates": 2, "attention": 2, "probability": 2}
"""Typical time relative to the fastest sections, which are not listed."""

SectionBuilder = Callable[[Progress], Section | None]


def inspect(
    models: Any,
    text: Sources | Corpus | SentencePairs | None = None,
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
    """Inspect one or more models, given as objects or folders, on the first `tokens` of a text.

    Without a text the embedded one is used. A translation model is inspected alone, on sentence pairs: two files or
    one table. `only` selects sections; `lags`, `positions` and `seed` apply to the gradient flow; `track` names
    text properties to search the cells for.
    """
    progress = as_progress(progress)
    start = time.perf_counter()
    _check_counts({"tokens": tokens, "lags": lags, "positions": positions})
    track_names = (track,) if isinstance(track, str) else tuple(track)
    section_names = _parse_sections(only, track_names)
    models_by_name = _load(models, device)
    if _is_translator(models_by_name):
        job = _translator_job(*models_by_name[0], text)
    else:
        flow = {"lags": lags, "positions": positions, "seed": seed}
        settings: dict[str, dict[str, Any]] = {"gradient_flow": flow, "gates": {"track": track_names}}
        job = _language_model_job(models_by_name, text, tokens, settings)
    if find_spec("matplotlib") is None:
        warnings.warn(f"no figures are drawn: {figures.MISSING_MATPLOTLIB}", ChainruleWarning, stacklevel=2)
    with figures.allow_missing_matplotlib():
        sections, left_out = _run_sections(job, section_names, progress, is_choice=bool(only))
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
    """The models, the text, and a builder for each section that applies."""

    subjects: tuple[Subject, ...]
    text: str
    makers: Mapping[str, SectionBuilder]
    pairs: int | None = None  # number of pairs given to a translator


def _language_model_job(
    models_by_name: Sequence[tuple[str, Model]],
    text: Sources | Corpus | SentencePairs | None,
    tokens: int,
    settings: Mapping[str, Mapping[str, Any]],
) -> _Job:
    if isinstance(text, SentencePairs):
        raise UsageError("pairs are for translation models; give a language model a text")
    corpus = default_corpus() if text is None else Corpus.of(text)
    source = f"{corpus.name}, the default text" if text is None else corpus.name
    samples = [
        take_sample(model, corpus, name=name, tokens=tokens, source=source) for name, model in models_by_name
    ]

    def make_builder(name: str) -> SectionBuilder:
        section_settings = settings.get(name, {})
        return lambda progress: import_module(f"chainrule.inspection.{name}").section(
            samples, progress=progress, **section_settings
        )

    return _Job(tuple(map(_subject, samples)), source, {name: make_builder(name) for name in SECTIONS})


def _translator_job(name: str, model: Any, text: Sources | Corpus | SentencePairs | None) -> _Job:
    if model.config.attention == "none":
        raise UsageError(f"{name} has no attention, but only the attention of a translation model can be inspected")
    if text is None:
        raise UsageError("a translation model is inspected on pairs: give a source and a target file, or one table")
    pairs = (
        text
        if isinstance(text, SentencePairs)
        else read_pairs([file.path for file in Corpus.of(text, expects_lines=False).files])
    )
    config, source, target = model.config, model.source, model.target
    subject = Subject(
        name=name,
        family=f"{config.family} translation model",
        sizes={"layers": config.layers, "width": config.hidden},
        parameters=model.parameters,
        tokenizer=_tokenizer(source) if config.joint else f"{_tokenizer(source)}; {_tokenizer(target)}",
        context="pairs",
        trained_on=model.origin.text,
        looked_at="",  # set by `_with_counts`
    )
    makers: dict[str, SectionBuilder] = {
        "attention": lambda progress: import_module("chainrule.inspection.attention").translator_section(
            model, pairs, progress=progress
        )
    }
    return _Job((subject,), pairs.name, makers, len(pairs))


def _with_counts(job: _Job, sections: Sequence[Section]) -> tuple[Subject, ...]:
    """Return the subjects; for a translation model, with the number of pairs that were read."""
    if job.pairs is None:
        return job.subjects
    read = max((section.data["pairs"] for section in sections), default=0)
    amount = f"{read or 'none'} of {job.pairs:,} pair{'' if job.pairs == 1 else 's'}"
    return tuple(replace(subject, looked_at=amount) for subject in job.subjects)


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


def _run_sections(
    job: _Job, section_names: Sequence[str], progress: Progress, *, is_choice: bool
) -> tuple[tuple[Section, ...], dict[str, str]]:
    """Run all sections; return those that apply and the reasons for the rest. A failing section is skipped."""
    sections: list[Section] = []
    skipped: dict[str, str] = {}
    times = [RELATIVE_TIME.get(name, 1) for name in section_names]
    for index, name in enumerate(section_names):
        subprogress = _subprogress(progress, name.replace("_", " "), sum(times[:index]), times[index], sum(times))
        subprogress("", 0, None)
        try:
            section = job.makers[name](subprogress) if name in job.makers else None
        except UsageError:
            raise
        except ChainruleError as error:
            skipped[name] = str(error)
            warnings.warn(f"{name} is left out: {error}", ChainruleWarning, stacklevel=3)
            continue
        if section is not None:
            sections.append(section)
        else:
            skipped[name] = NOT_APPLICABLE
            if is_choice:
                warnings.warn(f"{name} is left out: {NOT_APPLICABLE}", ChainruleWarning, stacklevel=3)
    progress("inspecting", PROGRESS_STEPS * sum(times), PROGRESS_STEPS * sum(times))
    return tuple(sections), skipped


def _subprogress(progress: Progress, title: str, before: int, duration: int, total_duration: int) -> Progress:
    """Return the progress of one section within the whole; `before` is the relative time of earlier sections."""

    def report(what: str, done: int, total: int | None) -> None:
        fraction = min(1.0, done / total) if total else 0.0
        steps = round(PROGRESS_STEPS * (before + fraction * duration))
        progress(f"{title}: {what}" if what else title, steps, PROGRESS_STEPS * total_duration)

    return report


def _load(models: Any, device: str) -> list[tuple[str, Any]]:
    """Load the models and give them distinct names."""
    is_single = isinstance(models, str | Path) or not isinstance(models, Sequence)
    sources = [models] if is_single else list(models)
    if not sources:
        raise UsageError("no model was given; give at least one model folder")
    names = unique_names([_parts(model) for model in sources])
    loaded = [api.load(model, device=device) if isinstance(model, str | Path) else model for model in sources]
    for model, source in zip(loaded, sources, strict=True):
        _check_kind(model, str(source))
    return list(zip(names, loaded, strict=True))


def _parts(model: Any) -> tuple[str, ...]:
    """Return the path components of a model, or its family if it has no path."""
    path = str(model) if isinstance(model, str | Path) else getattr(model, "name", "")
    if path:
        return Path(os.path.abspath(path)).parts
    return (str(getattr(model, "family", getattr(model, "task", "model"))),)


def unique_names(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the shortest distinguishing suffix of each path; duplicates are numbered.

    >>> unique_names([("runs", "a", "lstm"), ("runs", "b", "lstm"), ("gru",), ("gru",)])
    ['a/lstm', 'b/lstm', 'gru', 'gru (2)']
    """
    names: list[str] = []
    for path in paths:
        others = [other for other in paths if other != path]
        depths = (n for n in range(1, len(path)) if all(other[-n:] != path[-n:] for other in others))
        names.append(to_printable("/".join(path[-next(depths, len(path)) :])))
    used = set(names)
    for i, name in enumerate(names):
        if name in names[:i]:
            names[i] = next(other for n in count(2) if (other := f"{name} ({n})") not in used)
            used.add(names[i])
    return names


def _check_kind(model: Any, source: str) -> None:
    """Raise unless the model is a language model or translation model; `source` is named in the error."""
    task = getattr(model, "task", None)
    if task not in (None, "translate"):
        reason = "is neither a language model nor a translation model, so it cannot be inspected"
        raise UsageError(f"{source} {reason}; {usage_hint(str(task), source)}")
    if task is None and not isinstance(model, Model):
        raise UsageError(f"{source} is not a model; give a model or the folder of one")


def _is_translator(models_by_name: Sequence[tuple[str, Any]]) -> bool:
    """Return whether the one model is a translation model."""
    are_translators = [getattr(model, "task", None) == "translate" for _, model in models_by_name]
    if any(are_translators) and len(models_by_name) > 1:
        raise UsageError("a translation model is inspected alone: give one and no other model")
    return any(are_translators)


def _parse_sections(only: str | Sequence[str], track: Sequence[str]) -> list[str]:
    """Return the selected sections in page order."""
    requested = only.split(",") if isinstance(only, str) else list(only)
    names = [name.strip().replace("-", "_") for name in requested if name.strip()]
    for name in names:
        if name not in SECTIONS:
            raise ConfigError(f"there is no section '{name}'; choose among {', '.join(SECTIONS)}")
    selected = [name for name in SECTIONS if name in names or not names]
    if track and "gates" not in selected:
        raise UsageError("track belongs to the section gates; add gates to only")
    return selected


def _check_counts(counts: Mapping[str, int]) -> None:
    for name, number in counts.items():
        if not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name} is {number}; choose an integer of at least 1")


def peak_memory() -> int | None:
    """Return the peak resident memory of this process in bytes; None if unavailable."""
    try:
        import resource
    except ImportError:  # not Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere
