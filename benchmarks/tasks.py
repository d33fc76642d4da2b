"""Tags and labels on real data, with and without an encoder learnt from plain text first.

    python -m benchmarks.tasks --out runs/tasks [--only conll2003,ewt,sst2,sms]

Each model is trained by the command its recipe names; one that is there is measured, not trained again. The encoder
is one pair of forward and backward language models, lower-case, of WikiText-2 and the training sentences of the
three tasks without their tags and labels. What it brings is the last row of a task less the one above it, a net of
the same words and shape that begins from nothing. SMS has no split of its own: 80, 10 and
10 %, by seed 0, stratified.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.corpora import DATA, machine, table

from chainrule import recipes
from chainrule.text.columns import read_tagged
from chainrule.text.labelled import Labelled, read_labelled, split

ENCODER = "wikitext2-bilm"
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


def rows_of(
    task: str, name: str, title: str, files: list[Path], out: Path, systems: dict[str, list[object]]
) -> list[list[str]]:
    rows = []
    for system, words in systems.items():
        model = out / f"{name}-{system}".replace(" ", "-")
        seconds = trained(model, task, "train", *words[:1], files[0], "--valid", files[1], *words[1:])
        dev, test = (figure(task, name, command(task, "evaluate", model, file)) for file in files[1:])
        rows.append([title, system, f"{seconds / 60:.1f}", f"{dev:.2f}", f"{test:.2f}"])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def begun(recipe: str, before: Path) -> dict[str, list[object]]:
    """By the recipe alone; of the encoder's words and shape, but from nothing; and from the encoder itself."""
    plain: list[object] = ["lstm", "--recipe", recipe]
    shape = json.loads((before / "config.json").read_text())["model"]
    sizes = [word for name in ("hidden", "embedding", "layers") for word in (f"--{name}", shape[name])]
    return {
        "as the recipe says": plain,
        "the encoder's shape, from nothing": [*plain, "--tokenizer", before, *sizes, "--set", "directions=apart"],
        "pre-trained": [*plain, "--pretrained", before],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--only", default="conll2003,ewt,sst2,sms")
    parser.add_argument("--set", action="append", default=[], help="a setting of the encoder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only.split(",")
    before, seconds = encoder(out, arguments.set) if set(wanted) - {"sms"} else (out, 0.0)
    rows: list[list[str]] = []
    for name in (n for n in TAGGED if n in wanted):
        title, recipe, paths = TAGGED[name]
        systems = begun(recipe, before)
        rows += rows_of("tag", name, title, [DATA / path for path in paths], out, systems)
    if "sst2" in wanted:
        systems = {"naive Bayes": ["ngram"], "bigrams": ["ngram", "--order", 2], **begun("sst2-lstm", before)}
        rows += rows_of("classify", "sst2", "SST-2, accuracy %", [DATA / path for path in SST2], out, systems)
    if "sms" in wanted:
        systems = {"naive Bayes": ["ngram"], "as the recipe says": ["lstm", "--recipe", "sms-spam-lstm"]}
        rows += rows_of("classify", "sms", "SMS spam, F1 of spam", sms(out), out, systems)
    print(f"{machine()}; pre-training {seconds / 60:.1f} minutes\n")
    print(table(["task", "system", "minutes", "dev", "test"], rows))


if __name__ == "__main__":
    main()
