"""Commands with --workers print and write what they print and write without."""

from pathlib import Path

import pytest

from cli.command import QUIET, english, run_error, run_ok, trained, write

pytestmark = pytest.mark.native
WORKERS = ("--workers", 2, "--partition", "1k")


@pytest.fixture(scope="module")
def lines(shelf: Path) -> Path:
    """Ordinary lines, blank ones, unknown words, control symbols as text and a line longer than a fragment."""
    odd = "\n  \nzebra, <s> the cat </s>\n" + "the cat sees " * 6000 + "\nthe cat sees\n" * 3
    return write(shelf / "lines.txt", english(50, seed=4) + odd + english(10, seed=5).rstrip("\n"))


@pytest.mark.parametrize(
    "options",
    [
        ("score", "MODEL", "FILE", "--per-token", "--unit", "bits"),
        ("score", "MODEL", "FILE", "--json"),
        ("identify", "a=MODEL", "b=OTHER", "FILE", "--prior", "3,1"),
        ("identify", "a=MODEL", "b=OTHER", "FILE", "--json"),
        ("filter", "MODEL", "FILE", "--keep", "20%"),
        ("filter", "MODEL", "FILE", "--keep", 7, "--scores", "--drop-blank-lines"),
        ("filter", "MODEL", "FILE", "--keep", "1.0", "--json", "--by", "perplexity"),
        ("filter", "MODEL", "FILE", "--against", "OTHER", "--buckets", "a,b,c", "--json"),
        ("tokenizer", "encode", "MODEL", "FILE", "--tokens"),
        ("tokenizer", "encode", "OTHER", "FILE", "--json"),
    ],
    ids=lambda options: "-".join(map(str, options[:1])),
)
def test_output_is_that_without_workers(options: tuple[str, ...], model: Path, laplace: Path, lines: Path) -> None:
    names = {"MODEL": model, "OTHER": laplace, "FILE": lines}
    arguments = [
        str(option).replace("MODEL", str(model)).replace("OTHER", str(laplace)) if "=" in str(option) else option
        for option in (names.get(option, option) for option in options)
    ]
    expected, outcome = run_ok(*arguments), run_ok(*arguments, *WORKERS)
    assert outcome.out == expected.out
    assert outcome.err == expected.err


def test_files_are_those_without_workers(model: Path, lines: Path, tmp_path: Path) -> None:
    arguments = ("filter", model, lines, "--buckets", "head,middle,tail")
    run_ok(*arguments, "--out", tmp_path / "one")
    run_ok(*arguments, "--out", tmp_path / "two", *WORKERS)
    for name in ("head.txt", "middle.txt", "tail.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    run_ok("filter", model, "-", "--keep", "30%", "--out", tmp_path / "kept", *WORKERS, stdin=lines.read_bytes())
    expected = run_ok("filter", model, lines, "--keep", "30%").out
    assert (tmp_path / "kept").read_text() == expected


def test_tokenizer_train(english_text: Path, tmp_path: Path) -> None:
    arguments = ("tokenizer", "train", english_text, "--tokenizer", "word")
    run_ok(*arguments, "--out", tmp_path / "one")
    run_ok(*arguments, "--out", tmp_path / "two", "--workers", 1)
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
    error = run_error(2, "tokenizer", "train", english_text, "--out", tmp_path / "bpe", "--workers", 1)
    assert "a bpe tokenizer is made in one process; leave out --workers" in error


def test_resume_refuses_another_model(model: Path, laplace: Path, lines: Path, tmp_path: Path) -> None:
    options = ("--keep", 5, "--workers", 1, "--work", tmp_path / "work")
    expected = run_ok("filter", model, lines, *options).out
    assert run_ok("filter", model, lines, *options, "--resume").out == expected
    error = run_error(2, "filter", laplace, lines, *options, "--resume")
    assert "was created with other settings" in error


def test_wrong_usage(model: Path, english_text: Path, lines: Path, tmp_path: Path) -> None:
    stream = trained(tmp_path / "stream", english_text, "--context", "stream", *QUIET)
    for command in (("score", stream, lines), ("filter", stream, lines, "--keep", 3), ("identify", stream, model)):
        error = run_error(2, *command, *([lines] if command[0] == "identify" else []), "--workers", 1)
        assert "stream context" in error
        assert "leave out --workers" in error
    assert "--labels evaluates in one process" in run_error(
        2, "identify", stream, model, lines, "--labels", "--workers", 1
    )
