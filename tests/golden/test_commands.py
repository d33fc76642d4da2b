"""What commands print on the toy texts, as recorded: stdout, stderr and exit status."""

from pathlib import Path
from typing import Final

import pytest

from golden.commands import SESSIONS
from golden.recorded import GOLDEN, check, check_names
from golden.session import transcript, working_folder

COMMANDS: Final = GOLDEN / "commands"


@pytest.mark.parametrize("name", SESSIONS)
def test_command_output_equals_the_record(tmp_path: Path, name: str) -> None:
    session = SESSIONS[name]
    with working_folder(tmp_path, session.lines):
        printed = transcript(session.lines)
    check(COMMANDS / f"{name}.txt", printed, session.tolerance)


def test_every_command_record_is_used() -> None:
    check_names(COMMANDS, {f"{name}.txt" for name in SESSIONS})
