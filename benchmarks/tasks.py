"""Tags and labels on real data, with and without an encoder learnt from plain text first.

    python -m benchmarks.tasks --out runs/tasks [--only conll2003,ewt,sst2,sms] [--sentences 1000]

Each model is trained by the command its recipe names; one that is there is measured, not trained again. The encoder
is one pair of forward and backward language models, lower-case, of WikiText-2 and the training sentences of the
three tasks without their tags and labels. What it brings is the last row of a task less the one above it, a
net of the same words and shape that begins from nothing. SMS has no split of its own: 80, 10 and 10 %, by seed 0,
stratified. With --jobs several are trained at once, and the minutes are those of a shared machine.
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
from chainrule.text.columns import read_tagged
from chainrule.text.labelled import Labelled, read_labelled, split

ENCODER = "wikitext2-bilm"
FEW: dict[str, list[object]] = {"sst2": ["--epochs", 20]}  # where the recipe is too short for few sentences
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
    """One chainrule command; its JSON."""
    line = [sys.executable, "-m", "chainrule", *map(str, words), "--json"]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)


def trained(out: Path, *words: object) -> float:
    """Train into `out` unless the same command has done so; the seconds it took."""
    said = " ".join(map(str, words)) + "".join(
        recipes.path(str(w)).read_text() for w in words if w in recipes.names()
    )
    clock = out.with_name(f"{out.name}.{hashlib.sha256(said.encode()).hexdigest()[:8]}.seconds")
    if not clock.exists():
        start = time.perf_counter()
        command(*words, "--out", out)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def encoder(out: Path, settings: list[str]) -> tuple[Path, float]:
    """The pre-trained encoder."""
    text = out / "sentences.txt"
    if not text.exists():
        tagged = [s.words for name in TAGGED for s in read_tagged(DATA / TAGGED[name][2][0])]
        labelled = [text.split() for text in read_labelled(DATA / SST2[0]).texts]
        text.write_text("".join(" ".join(words) + "\n" for words in [*tagged, *labelled]), encoding="utf-8")
    family = recipes.read(ENCODER).family
    wiki = [DATA / "wikitext2" / f"wiki.{part}.tokens" for part in ("train", "valid")]
    given = [word for setting in settings for word in ("--set", setting)]
    words = ("pretrain", family, wiki[0], text, "--valid", wiki[1], "--recipe", ENCODER, "--lowercase", *given)
    return out / "encoder", trained(out / "encoder", *words)


def sms(out: Path) -> list[Path]:
    """The collection in three files of JSON Lines."""
    files = [out / f"sms.{part}.jsonl" for part in ("train", "dev", "test")]
    if not files[0].exists():
        whole = read_labelled(DATA / "sms_spam" / "SMSSpamCollection")
        for file, part in zip(files, split(whole, (0.8, 0.1, 0.1), seed=0), strict=True):
            write(file, part)
    return files


def write(file: Path, part: Labelled) -> None:
    rows = ({"text": text, "label": label} for text, label in zip(part.texts, part.labels, strict=True))
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def figure(task: str, name: str, found: dict[str, Any]) -> float:
    """The one number a task is known by, in per cent."""
    if task == "tag":
        return 100 * float(found["f1"] if name == "conll2003" else found["accuracy"])
    return 100 * float(found["labels"]["spam"]["f1"] if name == "sms" else found["accuracy"])


@dataclass(frozen=True, slots=True)
class Row:
    """One model of the table: how it is trained, and on what it is measured."""

    task: str  # tag or classify
    name: str  # of the data
    title: str
    files: tuple[Path, ...]  # train, dev, test
    system: str
    words: tuple[object, ...]  # of its command: family and settings

    def cells(self, out: Path) -> list[str]:
        """Train it, unless it is there, and measure it."""
        model = out / f"{self.files[0].name}-{self.system}".replace(" ", "-").replace(",", "").replace("'", "")
        family, *settings = self.words
        train, dev, test = self.files
        seconds = trained(model, self.task, "train", family, train, "--valid", dev, *settings)
        found = (figure(self.task, self.name, command(self.task, "evaluate", model, file)) for file in (dev, test))
        cells = [self.title, self.system, f"{seconds / 60:.1f}", *(f"{value:.2f}" for value in found)]
        print(" | ".join(cells), file=sys.stderr, flush=True)
        return cells


def begun(name: str, recipe: str, before: Path, is_few: bool = False) -> dict[str, list[object]]:
    """Of the encoder's words and shape, but from nothing; and from the encoder itself."""
    few = FEW.get(name, []) if is_few else []
    plain: list[object] = ["lstm", "--recipe", recipe, *few]
    shape = json.loads((before / "config.json").read_text())["model"]
    sizes = [word for key in ("hidden", "embedding", "layers") for word in (f"--{key}", shape[key])]
    return {
        "the encoder's shape, from nothing": [*plain, "--tokenizer", before, *sizes, "--set", "directions=apart"],
        "pre-trained": [*plain, "--pretrained", before, *([] if few else FINE[name])],
    }


def first(file: Path, out: Path, sentences: int) -> Path:
    """The first sentences of a file in a file of their own: blocks between blank lines, or lines; 0: all."""
    if not sentences:
        return file
    part = out / f"{file.name.removesuffix('.xz')}.{sentences}{'.conllu' if '.conllu' in file.name else ''}"
    with open_text(file) as lines:
        if file.name.startswith("stsa"):
            kept = list(itertools.islice(lines, sentences))
        else:
            blocks = (list(block) for is_text, block in itertools.groupby(lines, key=_is_text) if is_text)
            kept = [line for block in itertools.islice(blocks, sentences) for line in (*block, "\n")]
    part.write_text("".join(kept), encoding="utf-8")
    return part


def _is_text(line: str) -> bool:
    return bool(line.strip())


def open_text(file: Path) -> IO[str]:
    return lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8")


def tables(out: Path, wanted: list[str], sentences: int) -> dict[str, tuple[str, str, str, tuple[Path, ...]]]:
    """Task, title, recipe and files of the data that are wanted, by name."""
    known = {
        name: ("tag", title, recipe, tuple(DATA / p for p in paths))
        for name, (title, recipe, paths) in TAGGED.items()
    }
    known["sst2"] = ("classify", "SST-2, accuracy %", "sst2-lstm", tuple(DATA / path for path in SST2))
    known["sms"] = ("classify", "SMS spam, F1 of spam", "sms-spam-lstm", tuple(sms(out)))
    return {
        name: (task, title, recipe, (first(files[0], out, sentences), *files[1:]))
        for name, (task, title, recipe, files) in known.items()
        if name in wanted
    }


def alone(name: str, recipe: str) -> dict[str, list[object]]:
    """Systems that need no encoder."""
    bayes: dict[str, list[object]] = {"naive Bayes": ["ngram"], "bigrams": ["ngram", "--order", 2]}
    return (bayes if name in ("sst2", "sms") else {}) | {"as the recipe says": ["lstm", "--recipe", recipe]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--only", default="conll2003,ewt,sst2,sms")
    parser.add_argument("--sentences", type=int, default=0, help="learn from the first so many only; 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="models trained side by side")
    parser.add_argument("--set", action="append", default=[], help="a setting of the encoder")
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
        made = [pool.submit(row.cells, out) for row in rows(alone)]
        if pretrained is not None:
            before, seconds = pretrained.result()
            later = rows(
                lambda name, recipe: begun(name, recipe, before, bool(arguments.sentences)) if name in FINE else {}
            )
            made += [pool.submit(row.cells, out) for row in later]
            print(f"pre-training {seconds / 60:.1f} minutes", file=sys.stderr)
    found = sorted((each.result() for each in made), key=lambda cells: cells[0])
    print(f"{machine()}\n")
    print(table(["task", "system", "minutes", "dev", "test"], found))


if __name__ == "__main__":
    main()
