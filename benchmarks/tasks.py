"""Benchmark tagging and classification, with and without a pre-trained encoder.

    python -m benchmarks.tasks --out runs/tasks [--only conll2003,ewt,sst2,sms] [--sentences 1000]

Each model is trained with its recipe; existing models are evaluated without training again. The encoder is a pair
of forward and backward language models, lower-case, trained on WikiText-2 and on the training sentences of three
tasks without tags and labels. Its benefit is the difference between the last row of a task and the row above it,
a network of the same vocabulary and shape with random initialization. SMS spam has no standard split: 80, 10 and
10 %, stratified, seed 0. With --jobs several models are trained concurrently, and their minutes are not
comparable.
"""

import argparse
import hashlib
import itertools
import json
import lzma
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.corpora import DATA, machine, table

from chainrule import recipes
from chainrule.text.conll import read_tagged
from chainrule.text.labelled import LabelledTexts, read_labelled, split

ENCODER = "wikitext2-bilm"
FEW: dict[str, list[object]] = {"sst2": ["--epochs", 20]}  # longer training for few sentences
FINE: dict[str, list[object]] = {  # chosen on the dev sets
    "conll2003": ["--learning-rate", 1e-3],
    "ewt": ["--learning-rate", 1e-3],
    "sst2": ["--set", "weight_decay=0.1", "--dropout", 0.6],
}
TAGGED = {
    "conll2003": (
        "CoNLL-2003, F1",
        "conll2003-lstm",
        ("conll2003/eng.train", "conll2003/eng.testa", "conll2003/eng.testb"),
    ),
    "ewt": (
        "UD-EWT UPOS, accuracy %",
        "ewt-lstm",
        tuple(f"ud_english_ewt/en_ewt-ud-{part}" for part in ("train.conllu.xz", "dev.conllu", "test.conllu")),
    ),
}
SST2 = tuple(f"sst2/stsa.binary.{part}" for part in ("train", "dev", "test"))


def command(*words: object) -> Any:
    """Run a chainrule command and return its JSON output."""
    line = [sys.executable, "-m", "chainrule", *map(str, words), "--json"]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)


def train_model(out: Path, *words: object) -> float:
    """Train into `out` unless the same command has run before; return the seconds of training."""
    description = " ".join(map(str, words)) + "".join(
        recipes.path(str(w)).read_text() for w in words if w in recipes.names()
    )
    clock = out.with_name(f"{out.name}.{hashlib.sha256(description.encode()).hexdigest()[:8]}.seconds")
    if not clock.exists():
        start = time.perf_counter()
        command(*words, "--out", out)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def encoder(out: Path, settings: list[str]) -> tuple[Path, float]:
    """Pre-train the encoder; return its folder and the seconds of training."""
    text = out / "sentences.txt"
    if not text.exists():
        tagged = [s.words for name in TAGGED for s in read_tagged(DATA / TAGGED[name][2][0])]
        labelled = [text.split() for text in read_labelled(DATA / SST2[0]).texts]
        text.write_text("".join(" ".join(words) + "\n" for words in [*tagged, *labelled]), encoding="utf-8")
    family = recipes.read(ENCODER).family
    wiki = [DATA / "wikitext2" / f"wiki.{part}.tokens" for part in ("train", "valid")]
    overrides = [word for setting in settings for word in ("--set", setting)]
    words = ("pretrain", family, wiki[0], text, "--valid", wiki[1], "--recipe", ENCODER, "--lowercase", *overrides)
    return out / "encoder", train_model(out / "encoder", *words)


def sms(out: Path) -> list[Path]:
    """Write the SMS spam collection as three JSON Lines files."""
    files = [out / f"sms.{part}.jsonl" for part in ("train", "dev", "test")]
    if not files[0].exists():
        whole = read_labelled(DATA / "sms_spam" / "SMSSpamCollection")
        for file, part in zip(files, split(whole, (0.8, 0.1, 0.1), seed=0), strict=True):
            write(file, part)
    return files


def write(file: Path, part: LabelledTexts) -> None:
    rows = ({"text": text, "label": label} for text, label in zip(part.texts, part.labels, strict=True))
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def metric(task: str, name: str, metrics: dict[str, Any]) -> float:
    """Return the standard metric of a task in per cent."""
    if task == "tag":
        return 100 * float(metrics["f1"] if name == "conll2003" else metrics["accuracy"])
    return 100 * float(metrics["labels"]["spam"]["f1"] if name == "sms" else metrics["accuracy"])


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the table: training command and data files."""

    task: str  # tag or classify
    name: str  # data set
    title: str
    files: tuple[Path, ...]  # train, dev, test
    system: str
    words: tuple[object, ...]  # command arguments: family and settings

    def cells(self, out: Path) -> list[str]:
        """Train the model unless it exists, and evaluate it."""
        model = out / f"{self.files[0].name}-{self.system}".replace(" ", "-").replace(",", "").replace("'", "")
        family, *settings = self.words
        train, dev, test = self.files
        seconds = train_model(model, self.task, "train", family, train, "--valid", dev, *settings)
        values = (metric(self.task, self.name, command(self.task, "evaluate", model, file)) for file in (dev, test))
        cells = [self.title, self.system, f"{seconds / 60:.1f}", *(f"{value:.2f}" for value in values)]
        print(" | ".join(cells), file=sys.stderr, flush=True)
        return cells


def encoder_systems(name: str, recipe: str, encoder_folder: Path, is_few: bool = False) -> dict[str, list[object]]:
    """Return the systems with the encoder's vocabulary and shape: random initialization, and pre-trained."""
    few = FEW.get(name, []) if is_few else []
    plain: list[object] = ["lstm", "--recipe", recipe, *few]
    shape = json.loads((encoder_folder / "config.json").read_text())["model"]
    sizes = [word for key in ("hidden", "embedding", "layers") for word in (f"--{key}", shape[key])]
    return {
        "encoder shape, random init": [*plain, "--tokenizer", encoder_folder, *sizes, "--set", "directions=apart"],
        "pre-trained": [*plain, "--pretrained", encoder_folder, *([] if few else FINE[name])],
    }


def first_sentences(file: Path, out: Path, sentences: int) -> Path:
    """Write the first sentences of a file (blocks between blank lines, or lines) to a new file; 0: all."""
    if not sentences:
        return file
    part = out / f"{file.name.removesuffix('.xz')}.{sentences}{'.conllu' if '.conllu' in file.name else ''}"
    with open_text(file) as lines:
        if file.name.startswith("stsa"):
            selected = list(itertools.islice(lines, sentences))
        else:
            blocks = (list(block) for is_text, block in itertools.groupby(lines, key=_is_text) if is_text)
            selected = [line for block in itertools.islice(blocks, sentences) for line in (*block, "\n")]
    part.write_text("".join(selected), encoding="utf-8")
    return part


def _is_text(line: str) -> bool:
    return bool(line.strip())


def open_text(file: Path) -> IO[str]:
    return lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8")


def tables(out: Path, selected: list[str], sentences: int) -> dict[str, tuple[str, str, str, tuple[Path, ...]]]:
    """Return task, title, recipe and files of the selected data sets by name."""
    known = {
        name: ("tag", title, recipe, tuple(DATA / p for p in paths))
        for name, (title, recipe, paths) in TAGGED.items()
    }
    known["sst2"] = ("classify", "SST-2, accuracy %", "sst2-lstm", tuple(DATA / path for path in SST2))
    known["sms"] = ("classify", "SMS spam, F1 of spam", "sms-spam-lstm", tuple(sms(out)))
    return {
        name: (task, title, recipe, (first_sentences(files[0], out, sentences), *files[1:]))
        for name, (task, title, recipe, files) in known.items()
        if name in selected
    }


def baseline_systems(name: str, recipe: str) -> dict[str, list[object]]:
    """Return the systems without an encoder."""
    bayes: dict[str, list[object]] = {"naive Bayes": ["ngram"], "bigrams": ["ngram", "--order", 2]}
    return (bayes if name in ("sst2", "sms") else {}) | {"recipe": ["lstm", "--recipe", recipe]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--only", default="conll2003,ewt,sst2,sms")
    parser.add_argument("--sentences", type=int, default=0, help="number of training sentences; 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="models trained concurrently")
    parser.add_argument("--set", action="append", default=[], help="setting of the encoder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    data = tables(out, arguments.only.split(","), arguments.sentences)

    def rows(systems: Callable[[str, str], dict[str, list[object]]]) -> list[Row]:
        return [
            Row(task, name, title, files, system, tuple(words))
            for name, (task, title, recipe, files) in data.items()
            for system, words in systems(name, recipe).items()
        ]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        pretrained = pool.submit(encoder, out, arguments.set) if set(data) - {"sms"} else None
        futures = [pool.submit(row.cells, out) for row in rows(baseline_systems)]
        if pretrained is not None:
            encoder_folder, seconds = pretrained.result()
            later = rows(
                lambda name, recipe: (
                    encoder_systems(name, recipe, encoder_folder, bool(arguments.sentences)) if name in FINE else {}
                )
            )
            futures += [pool.submit(row.cells, out) for row in later]
            print(f"pre-training {seconds / 60:.1f} minutes", file=sys.stderr)
    finished = sorted((future.result() for future in futures), key=lambda cells: cells[0])
    print(f"{machine()}\n")
    print(table(["task", "system", "minutes", "dev", "test"], finished))


if __name__ == "__main__":
    main()
