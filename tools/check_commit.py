"""Check that commit subjects follow CONTRIBUTING.md.

A subject has at most 60 characters and starts with a verb in the imperative, after an optional "part: " prefix of
at most three words. A blank line separates the subject from the body. Subjects of merges and reverts are accepted.

Usage: `check_commit.py FILE` (as git's commit-msg hook) or `check_commit.py --since REV` (all commits REV..HEAD).
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

MAX_LENGTH = 60
PREFIX = re.compile(r"[\w./+-]+( [\w./+-]+){0,2}:( |$)")
WRITTEN_BY_GIT = re.compile(r'Merge |Revert "')
NOT_IMPERATIVE = re.compile(r"(ed|ing|(?<!s)s)$")
IMPERATIVE = re.compile(
    r"alias|bias|bring|(ex|pro|suc)ceed|embed|feed|focus|need|ping|ring|seed|shed|shred|speed|string|swing|weed"
)
"""Verbs whose base form ends in -ed, -ing or -s; verbs in -ss (pass, address, compress) need no entry."""
NOT_VERBS = frozenset({"a", "an", "the"})


def find_violations(message: str) -> list[str]:
    """Return what is wrong with a commit message, one sentence per violation."""
    lines = message.splitlines()
    subject = lines[0].strip() if lines else ""
    if not subject:
        return ["the subject is empty"]
    if WRITTEN_BY_GIT.match(subject):
        return []
    violations = []
    if len(subject) > MAX_LENGTH:
        violations.append(f"the subject has {len(subject)} characters; use at most {MAX_LENGTH}")
    if len(lines) > 1 and lines[1].strip():
        violations.append("the second line is not blank; separate the subject from the body")
    rest = PREFIX.sub("", subject, count=1).split()
    if not rest:
        return [*violations, "the subject has no text after its prefix"]
    word = rest[0].lower()
    is_verb = IMPERATIVE.fullmatch(word) or (word not in NOT_VERBS and not NOT_IMPERATIVE.search(word))
    if not is_verb:
        violations.append(f'"{rest[0]}" is not a verb in the imperative; write for example "Add" or "Fix"')
    return violations


def clean_message(text: str) -> str:
    """Remove the comments and the diff below the scissors line, as git does."""
    text = re.split(r"^# -+ >8 -+$", text, maxsplit=1, flags=re.MULTILINE)[0]
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip("\n")


def run_git(*arguments: str, folder: Path | None = None) -> str | None:
    """Return the standard output of a git command, or None if git is missing or the command fails."""
    try:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, encoding="utf-8").stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def check_history(revision: str, folder: Path | None = None) -> int:
    """Print the violations of all commits after `revision`; return the exit status."""
    log = None
    if run_git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", folder=folder) is not None:
        log = run_git("log", "--no-merges", "--format=%h%n%B%x00", f"{revision}..HEAD", folder=folder)
    if log is None:
        print(f"check_commit: commit {revision} is not in this clone; no commits checked")
        return 0
    failed = False
    for entry in log.split("\0"):
        if not entry.strip():
            continue
        commit, _, message = entry.lstrip("\n").partition("\n")
        for violation in find_violations(message):
            failed = True
            print(f"{commit} {message.splitlines()[0] if message.strip() else ''}: {violation}")
    return int(failed)


def main(arguments: list[str] | None = None) -> int:
    """Check a message file or the history; return the exit status."""
    parser = argparse.ArgumentParser(description="Check commit subjects against CONTRIBUTING.md.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", type=Path, help="file with one commit message (git's commit-msg hook)")
    source.add_argument("--since", metavar="REV", help="check all commits REV..HEAD")
    options = parser.parse_args(arguments)
    if options.since is not None:
        return check_history(options.since)
    violations = find_violations(clean_message(options.file.read_text(encoding="utf-8")))
    for violation in violations:
        print(f"commit message: {violation}", file=sys.stderr)
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
