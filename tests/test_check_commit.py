"""tools/check_commit.py: commit subjects in the imperative, of at most 60 characters."""

import subprocess
from pathlib import Path

import pytest
from tools.check_commit import check_history, clean_message, find_violations, main


@pytest.mark.parametrize(
    "message",
    [
        "Add a glossary",
        "cpp: fill the word table to three quarters",
        "cpp tests: register tests statically",
        "tests/cli: bring the fork server up once",
        "ngram: pass the discounts to the engine",
        "Address the review",
        "Process lines in batches",
        "Compress the model file",
        "decoding: feed the prompt in chunks",
        "Need a key for public addresses",
        "Embed the novel",
        "Speed up scoring",
        "x" * 60,
        "Fix it\n\nThe body says why.",
        'Revert "a subject that git repeats and that is then longer than sixty characters"',
        "Merge branch 'a branch with a name that makes the subject longer than sixty characters'",
    ],
)
def test_valid_commit_messages_are_accepted(message: str) -> None:
    assert find_violations(message) == []


@pytest.mark.parametrize(
    ("message", "violation"),
    [
        ("x" * 61, "61 characters"),
        ("Added a glossary", '"Added"'),
        ("ngram: fixes the discounts", '"fixes"'),
        ("Adding a glossary", '"Adding"'),
        ("README: the table of compare", '"the"'),
        ("", "empty"),
        ("   ", "empty"),
        ("docs: ", "no text after its prefix"),
        ("Fix it\nwithout a blank line", "second line"),
    ],
)
def test_invalid_commit_messages_are_rejected(message: str, violation: str) -> None:
    (message_,) = find_violations(message)
    assert violation in message_


def test_every_violation_is_reported() -> None:
    assert len(find_violations("Added " + "x" * 60 + "\nbody")) == 3


def test_comments_and_the_diff_are_not_part_of_the_message() -> None:
    edited = "\nAdd a test\n# Please enter the commit message\n# ------------------------ >8 ---------\ndiff\n"
    assert clean_message(edited) == "Add a test"


def test_commit_hook_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text("Add a test\n\nBecause.\n# comment\n")
    assert main([str(path)]) == 0
    path.write_text("Added a test\n")
    assert main([str(path)]) == 1
    assert '"Added"' in capsys.readouterr().err


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits; the last subject is wrong in two ways."""
    git(tmp_path, "init", "--quiet")
    for subject in ("Begin", "Add a test\n\nBecause.", "Adding " + "x" * 60):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "--no-verify", "--message", subject)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_check_history(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_history("HEAD~2", repository) == 1
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all("Adding xxx" in line for line in printed)
    git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    assert check_history("HEAD~1", repository) == 0
    assert capsys.readouterr().out == ""


def test_clone_without_the_base_commit_is_not_checked(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (repository, tmp_path_factory.mktemp("no-repository")):
        assert check_history("4667b1b", folder) == 0
        assert "4667b1b is not in this clone; no commits checked" in capsys.readouterr().out
