"""N-gram training on an engine: the model of training in one process, with failures in between."""

import json
import multiprocessing
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chainrule
from chainrule import api
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.text.corpus import Corpus
from distributed.trained_models import describe_model, start_serial_engine, write_zipf_text

pytestmark = pytest.mark.native

KILL_DRIVER = """
import os, signal, sys, chainrule
def kill(stage, done, total):
    if stage == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
chainrule.train("ngram", sys.argv[1], order=3, workers=2, work=sys.argv[2], partition="5k", progress=kill)
"""


def train_both(text: Any, folder: Path, engine: dict[str, Any], **chosen: Any) -> None:
    """Train in this process and on an engine; compare everything that is saved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        api.train("ngram", text, **chosen).save(folder / "local", force=True)
        api.train("ngram", text, **chosen, **engine).save(folder / "engine", force=True)
    assert describe_model(folder / "engine") == describe_model(folder / "local")


words = st.sampled_from(
    ["a", "b", "c", "ab", "A", "<unk>", "<s>", "</s>", ",", "x.", "\u00e9", "\u4e2d", "it's", "3.14"]
)
lines = st.lists(st.lists(words, max_size=6).map(" ".join), min_size=1, max_size=30)
tokenizers = st.one_of(
    st.fixed_dictionaries(
        {
            "tokenizer": st.sampled_from(["word", "whitespace", "char"]),
            "min_count": st.integers(1, 3),
            "vocab_size": st.sampled_from([None, 2, 5]),
            "lowercase": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {"tokenizer": st.sampled_from(["word", "char"]), "unk": st.just("a"), "closed": st.just(False)}
    ),
    st.just({"tokenizer": "byte"}),
)
models = st.fixed_dictionaries(
    {
        "order": st.integers(1, 4),
        "prune": st.sampled_from([(), (0,), (0, 1)]),
        "context": st.sampled_from(["line", "stream"]),
        "layout": st.sampled_from(["fast", "small"]),
    }
)


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=lines, tokenizer=tokenizers, model=models, partition=st.sampled_from([7, 40, 200, 10**6]))
def test_model_is_that_of_training_in_one_process(
    lines: list[str], tokenizer: dict[str, Any], model: dict[str, Any], partition: int, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    chosen = {name: value for name, value in (tokenizer | model).items() if value is not None}
    if len(chosen["prune"]) > chosen["order"]:
        chosen["prune"] = ()
    engine: dict[str, Any] = {"workers": 1, "partition": partition}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "start_engine", start_serial_engine)
        try:
            api.train("ngram", path, **chosen)
        except (InputError, ConfigError) as error:
            with pytest.raises(type(error)):
                api.train("ngram", path, **engine, **chosen)
        else:
            train_both(path, tmp_path, engine, **chosen)


def test_long_lines_and_other_formats(tmp_path: Path) -> None:
    """A line above 65,536 characters is read in fragments; line ends, formats and texts in memory differ."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\n" + b"long line, " * 20_000 + b"\rlast \n\n a b\n")
    (folder / "b.jsonl").write_text('{"text": "three\\nfour, five"}\n' * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "start_engine", start_serial_engine)
        for context in ("line", "stream"):
            for kind in ("word", "char"):
                corpus = Corpus.of(folder)
                train_both(
                    corpus, tmp_path, {"workers": 1, "partition": 20_000}, context=context, tokenizer=kind, order=3
                )
        train_both(Corpus.of(folder, drop_blank_lines=True), tmp_path, {"workers": 1, "partition": 20_000})
        train_both(Corpus.from_lines(["a b", "c d e", "a"] * 9), tmp_path, {"workers": 1, "partition": 20}, order=2)


@pytest.mark.parametrize("tokenizer", ["bpe", "wordpiece", "folder"])
def test_subword_tokenizers(tokenizer: str, tmp_path: Path) -> None:
    text = write_zipf_text(tmp_path / "text.txt", 200)
    chosen: dict[str, Any] = {"tokenizer": tokenizer, "vocab_size": 600}
    if tokenizer == "folder":
        other = write_zipf_text(tmp_path / "other.txt", 100, seed=2)
        api.train("ngram", other, order=1).save(tmp_path / "first")
        chosen = {"tokenizer": tmp_path / "first"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "start_engine", start_serial_engine)
        train_both(text, tmp_path, {"workers": 1, "partition": "1k"}, order=2, **chosen)


def test_processes_shards_and_validation_text(tmp_path: Path) -> None:
    text = write_zipf_text(tmp_path / "text.txt", 3000)
    valid = write_zipf_text(tmp_path / "valid.txt", 100, seed=2)
    chosen: dict[str, Any] = {"valid": valid, "min_count": 2, "order": 3, "bits": 8, "layout": "small"}
    train_both(text, tmp_path, {"workers": 2, "partition": "10k"}, **chosen)
    from chainrule.applications.convert import split_model

    split_model(chainrule.load(tmp_path / "local"), 3).save(tmp_path / "split")
    api.train("ngram", text, workers=2, shards=3, **chosen).save(tmp_path / "sharded")
    assert describe_model(tmp_path / "sharded") == describe_model(tmp_path / "split")


def test_killed_driver_is_resumed(tmp_path: Path) -> None:
    """SIGKILL while the stage `estimates` runs: the stages before it are not repeated."""
    text, work = write_zipf_text(tmp_path / "text.txt", 2000), tmp_path / "work"
    command = [sys.executable, "-c", KILL_DRIVER, str(text), str(work), "estimates"]
    assert subprocess.run(command, check=False).returncode == -9
    complete = {
        path: path.stat().st_mtime_ns for path in work.glob("*/*.records") if (path.parent / "_SUCCESS").exists()
    }
    assert {path.parent.name for path in complete} == {"words", "vocabulary", "windows", "sums"}
    api.train("ngram", text, order=3, workers=1, work=work, resume=True).save(tmp_path / "engine")
    assert complete == {path: path.stat().st_mtime_ns for path in complete}
    api.train("ngram", text, order=3).save(tmp_path / "local")
    assert describe_model(tmp_path / "engine") == describe_model(tmp_path / "local")
    with pytest.raises(UsageError, match="other settings"):
        api.train("ngram", text, order=4, workers=1, work=work, resume=True)


def test_dead_worker_is_replaced(tmp_path: Path) -> None:
    text = write_zipf_text(tmp_path / "text.txt", 2000)
    killed: list[int | None] = []

    def kill_a_worker(stage: str, done: int, total: int | None) -> None:
        if stage == "windows" and done and not killed:
            worker = multiprocessing.active_children()[0]
            worker.kill()
            killed.append(worker.pid)

    train_both(text, tmp_path, {"workers": 2, "partition": "3k", "progress": kill_a_worker}, order=3)
    assert killed


@pytest.mark.parametrize(("limit", "name"), [(1 << 15, "work/vocabulary"), (3 << 17, "work/model.ngram")])
def test_full_disk(limit: int, name: str, tmp_path: Path) -> None:
    """A file that cannot be written is one line of error; nothing is left in `--out`."""
    text = write_zipf_text(tmp_path / "text.txt", 3000)
    words = ["train", "ngram", str(text), "--workers", "2", "--work", str(tmp_path / "work"), "--partition", "10k"]
    result = subprocess.run(
        [sys.executable, "-m", "chainrule", *words, "--out", str(tmp_path / "model")],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 1
    assert str(tmp_path / name) in result.stderr
    assert "make room, or choose another disk with --work" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "work" / "model.ngram").exists()


def test_command_line(tmp_path: Path) -> None:
    text = write_zipf_text(tmp_path / "text.txt", 100)
    command = [sys.executable, "-m", "chainrule", "train", "ngram", str(text), "--workers", "1", "--json"]
    result = subprocess.run([*command, "--out", str(tmp_path / "m")], check=True, capture_output=True, text=True)
    assert json.loads(result.stdout)["train_oov"] == 0
    refused = subprocess.run([*command, "--resume", "--out", str(tmp_path / "n")], check=False, capture_output=True)
    assert refused.returncode == 2
    assert b"add --work DIR" in refused.stderr


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("lstm", {"workers": 2}, "train n-gram models"),
        ("ngram", {"workers": 2, "smoothing": "katz"}, "modified-kneser-ney"),
        ("ngram", {"workers": 2, "entropy_prune": 1e-8}, "entropy pruning"),
        ("ngram", {"workers": 2, "memory": "1G"}, "choose --partition"),
        ("ngram", {"shards": 2}, "add --workers N"),
        ("ngram", {"workers": 2, "shards": 0}, "shards is 0"),
        ("ngram", {"on": "mars"}, "choose one of processes"),
    ],
)
def test_options_that_exclude_each_other(
    family: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    text = write_zipf_text(tmp_path / "text.txt", 9)
    with pytest.raises(UsageError, match=message):
        api.train(family, text, **options)


def test_text_without_words(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n")
    for name in ("empty.txt", "blank.txt"):
        with pytest.raises(ChainruleError, match="no words"):
            api.train("ngram", tmp_path / name, workers=1)
