"""Model folders of every family and task as an earlier version wrote them, and the numbers they must give.

A folder that exists is never written again: that it can still be read is what it proves.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import chainrule
from golden.checkpoint import write_checkpoint
from golden.normalizer import normalize
from golden.recorded import CHECKPOINT, FOLDERS
from golden.session import run, working_folder

SENTENCE: Final = "the cat sees a dog"
NETWORK: Final = "--epochs 3 --batch-size 8 --learning-rate 0.03 --threads 1 --device cpu"
TASK: Final = "--epochs 10 --batch-size 4 --learning-rate 0.1 --threads 1 --device cpu"
SMALL: Final = f"--hidden 4 --embedding 4 {NETWORK}"
SMALL_TASK: Final = f"--hidden 4 --embedding 4 {TASK}"
HEADS: Final = f"--hidden 8 --layers 1 --set heads=2 {NETWORK}"
HEADS_TASK: Final = f"--hidden 8 --layers 1 --set heads=2 {TASK}"
VECTORS: Final = "--dimensions 4 --min-count 1 --threads 1 --set simd=none"

LANGUAGE_MODEL: Final = (
    "score {} test.txt --per-token --json",
    "evaluate {} test.txt --json",
    "next {} 'the cat' --top 5 --json",
    "generate {} --prompt the --strategy greedy --max-tokens 6 --json",
    "generate {} --prompt the --seed 3 --max-tokens 6 --num 2 --json",
    "generate {} --strategy beam --max-tokens 6 --json",
)
CLASSIFY: Final = (
    "classify predict {} --json < texts.txt",
    "classify evaluate {} labels.test.tsv --json",
)
TAG: Final = ("tag predict {} --probabilities --json < words.txt", "tag evaluate {} tagged.test.conll --json")
TRANSLATE: Final = (
    "translate predict {} --num 2 --json < sources.txt",
    "translate predict {} --strategy sample --seed 2 --json < sources.txt",
    "translate score {} pairs.test.tsv --json",
    "translate evaluate {} pairs.test.tsv --json",
)
ENCODER: Final = ("vectors contextual {} --json < mixed.txt",)
WORD_VECTORS: Final = (
    "vectors neighbors {} cat the --top 4 --json",
    "vectors analogy {} cat dog the --top 3 --json",
    "vectors evaluate {} --pairs judged.tsv --analogies questions.txt --sections --json",
)
TOKENIZER: Final = ("tokenizer encode {} --json < test.txt", "tokenizer encode {} --tokens < mixed.txt")


@dataclass(frozen=True)
class Stored:
    """How a stored folder was written, which commands read it, and whether its numbers are those of a network."""

    train: str
    read: Sequence[str]
    is_network: bool = True


STORED: Final = {
    "ngram": Stored("train ngram train.txt --order 3", LANGUAGE_MODEL, False),
    "ngram-quantized": Stored(
        "train ngram train.txt --order 4 --layout small --quantize 8 --prune 0,0,1", LANGUAGE_MODEL, False
    ),
    "ngram-closed": Stored("train ngram train.txt --order 2 --smoothing katz --closed", LANGUAGE_MODEL, False),
    "ngram-stream": Stored(
        "train ngram train.txt --order 5 --tokenizer char --context stream --entropy-prune 1e-4",
        LANGUAGE_MODEL,
        False,
    ),
    "ngram-bpe": Stored(
        "train ngram train.txt --order 3 --tokenizer bpe --vocab-size 300 --smoothing witten-bell",
        LANGUAGE_MODEL,
        False,
    ),
    "ngram-unk": Stored(
        "train ngram train.txt --order 3 --min-count 12 --lowercase --smoothing jelinek-mercer",
        LANGUAGE_MODEL,
        False,
    ),
    "feedforward": Stored(f"train feedforward train.txt --valid valid.txt --order 3 {SMALL}", LANGUAGE_MODEL),
    "rnn": Stored(f"train rnn train.txt --valid valid.txt {SMALL}", LANGUAGE_MODEL),
    "lstm": Stored(f"train lstm train.txt --valid valid.txt {SMALL}", LANGUAGE_MODEL),
    "lstm-attention": Stored(
        "train lstm train.txt --layers 2 --attention additive --no-tie --tokenizer models/ngram-unk "
        f"--set layer_norm=true --set learned_start=true {SMALL}",
        LANGUAGE_MODEL,
    ),
    "lstm-adaptive": Stored(
        f"train lstm train.txt --context stream --no-tie --set output=adaptive --set cutoffs=8 {SMALL}",
        LANGUAGE_MODEL,
    ),
    "gru": Stored(f"train gru train.txt --set reset=before --tokenizer models/ngram {SMALL}", LANGUAGE_MODEL),
    "transformer": Stored(f"train transformer train.txt --set window=16 {HEADS}", LANGUAGE_MODEL),
    "transformer-learned": Stored(
        f"train transformer train.txt --set window=6 --set positions=learned --set norm=post {HEADS}",
        LANGUAGE_MODEL,
    ),
    "mixture": Stored("mix models/ngram models/lstm models/gru --held-out valid.txt", LANGUAGE_MODEL),
    "translate-lstm": Stored(
        f"translate train lstm pairs.tsv --attention none --tokenizer word {SMALL_TASK}", TRANSLATE
    ),
    "translate-gru": Stored(
        f"translate train gru pairs.tsv --attention additive --separate --tokenizer word {SMALL_TASK}", TRANSLATE
    ),
    "translate-transformer": Stored(
        f"translate train transformer pairs.tsv --tokenizer word {HEADS_TASK}", TRANSLATE
    ),
    "classify-bayes": Stored("classify train ngram labels.tsv --smoothing laplace", CLASSIFY, False),
    "classify-ngram": Stored("classify train ngram labels.tsv --order 2 --smoothing witten-bell", CLASSIFY, False),
    "classify-lstm": Stored(
        f"classify train lstm labels.tsv --valid labels.test.tsv --pooling attention {SMALL_TASK}", CLASSIFY
    ),
    "classify-transformer": Stored(f"classify train transformer labels.tsv --pooling mean {HEADS_TASK}", CLASSIFY),
    "pretrain-lstm": Stored(f"pretrain lstm train.txt --valid valid.txt {SMALL}", ENCODER),
    "pretrain-transformer": Stored(f"pretrain transformer train.txt {HEADS}", ENCODER),
    "tag-lstm": Stored(f"tag train lstm tagged.conll --characters 4 {SMALL_TASK}", TAG),
    "tag-transformer": Stored(f"tag train transformer tagged.conll --no-crf --characters 0 {HEADS_TASK}", TAG),
    "tag-pretrained": Stored(
        f"tag train lstm tagged.conll --characters 0 --pretrained models/pretrain-lstm {TASK}", TAG
    ),
    "vectors-skipgram": Stored(f"vectors train train.txt {VECTORS}", WORD_VECTORS),
    "vectors-cbow": Stored(f"vectors train train.txt --method cbow --lowercase {VECTORS}", WORD_VECTORS),
    "vectors-subwords": Stored(
        f"vectors train train.txt --subwords 3-4 --set buckets=50 {VECTORS}",
        (*WORD_VECTORS, "vectors neighbors {} gardens --top 3 --json"),
    ),
    "vectors-glove": Stored(f"vectors train train.txt --method glove {VECTORS}", WORD_VECTORS),
    "vectors-ppmi": Stored("vectors train train.txt --method ppmi --dimensions 4 --min-count 1", WORD_VECTORS),
    "vectors-one-hot": Stored("vectors train train.txt --method one-hot --min-count 1", WORD_VECTORS),
    "tokenizer-bpe": Stored("tokenizer train train.txt --tokenizer bpe --vocab-size 300", TOKENIZER, False),
    "tokenizer-wordpiece": Stored(
        "tokenizer train train.txt --tokenizer wordpiece --vocab-size 530", TOKENIZER, False
    ),
    "tokenizer-unigram": Stored("tokenizer train train.txt --tokenizer unigram --vocab-size 530", TOKENIZER, False),
}


def numbers(name: str) -> str:
    """Read a stored folder by the command line and by Python; return the results as JSON.

    The working directory holds the texts, and the folder under `models`.
    """
    results: dict[str, object] = {}
    for command in STORED[name].read:
        outcome = run(command.format(f"models/{name}"))
        assert outcome.status == 0, f"{command}: {outcome.err}"
        results[f"chainrule {command.format(name)}"] = _documents(normalize(outcome.out))
    if STORED[name].read is LANGUAGE_MODEL:
        model = chainrule.load(f"models/{name}", device="cpu")
        score = model.score(SENTENCE)
        results["chainrule.load"] = {
            "tokens": list(score.tokens),
            "log_probs": [float(log_prob) for log_prob in score.log_probs],
            "log_prob": float(score.log_prob),
            "next": [[token, float(probability)] for token, probability in model.next("the", top=3)],
        }
    return json.dumps(results, ensure_ascii=False, indent=1) + "\n"


def _documents(text: str) -> object:
    """One JSON document, JSON Lines, or lines of text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        lines = text.splitlines()
        return [json.loads(line) if line.startswith("{") else line for line in lines]


def write_missing() -> None:
    """Train and store each folder that is missing, and the numbers that are; then the checkpoint, likewise."""
    FOLDERS.mkdir(exist_ok=True)
    for name, stored in STORED.items():
        if not (FOLDERS / name).exists():
            with tempfile.TemporaryDirectory() as folder, working_folder(Path(folder), [stored.train]):
                outcome = run(f"{stored.train} --out models/{name}")
                if outcome.status:
                    sys.exit(f"{name}: {outcome.err}")
                shutil.copytree(Path("models") / name, FOLDERS / name)
            print(f"wrote {name}")
        path = FOLDERS / f"{name}.json"
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder, working_folder(Path(folder), [f"models/{name}"]):
                path.write_text(numbers(name), encoding="utf-8")
            print(f"wrote {path.name}")
    if not CHECKPOINT.exists():
        write_checkpoint()
        print("wrote checkpoint")


if __name__ == "__main__":
    write_missing()
