"""Journal of an unfinished comparison: its plan and finished rows as JSON Lines, for resumption."""

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import config as configs
from chainrule import families
from chainrule.comparison.measurement import Measured
from chainrule.comparison.plan import Candidate
from chainrule.comparison.results import Row
from chainrule.comparison.tokenized_text import Tokenized
from chainrule.errors import InputError, UsageError
from chainrule.storage.atomic import write_error

NAME: Final = "unfinished.jsonl"
EXPECTATIONS: Final = ("seconds", "expected_seconds", "expected_epochs", "note")


class Journal:
    """JSON Lines file in the output folder, removed when the comparison is finished.

    The first line identifies the comparison. A truncated last line is ignored.
    """

    def __init__(self, folder: Path | None, identity: dict[str, Any], resume: bool) -> None:
        self.path = None if folder is None else folder / NAME
        self.finished: dict[str, Measured] = {}
        self.runs: dict[tuple[str, int], Measured] = {}  # finished runs by name and seed
        self.plan: list[dict[str, Any]] | None = None
        if self.path is None:
            return
        records = self._read() if resume else []
        if records and records[0] != {"kind": "comparison", **identity}:
            raise UsageError(
                f"{self.path.parent} contains an interrupted comparison with other options or of another text; "
                "resume it with the command that started it, or replace it with --force"
            )
        for record in records[1:]:
            self._replay(record)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = records or [{"kind": "comparison", **identity}]
            self.path.write_text("".join(map(_line, content)), encoding="utf-8")
        except OSError as error:
            raise write_error(self.path, error) from error

    def add(self, measured: Measured, seed: int | None = None) -> None:
        """Record a finished row, or one seed of a network trained with several."""
        self._write({"kind": "row", "seed": seed, "row": measured.row.to_json(), "nats": _pack(measured.line_nats)})

    def add_plan(self, candidates: list[Candidate]) -> None:
        """Record the planned networks, so that checkpoints are resumed with the same config."""
        self.plan = [
            {
                "tokenizer": candidate.tokenized.name,
                "family": candidate.family,
                "config": configs.to_json(candidate.config),
                "name": candidate.name,
                **{name: getattr(candidate, name) for name in EXPECTATIONS},
            }
            for candidate in candidates
        ]
        self._write({"kind": "plan", "networks": self.plan})

    def planned(self, tokenized: dict[str, Tokenized]) -> list[Candidate] | None:
        """Planned networks; None without a recorded plan."""
        if self.plan is None:
            return None
        return [
            Candidate(
                tokenized[entry["tokenizer"]],
                entry["family"],
                configs.build_config(families.get(entry["family"]).Config, entry["config"], "model", is_saved=True),
                entry["name"],
                **{name: entry[name] for name in EXPECTATIONS},
            )
            for entry in self.plan
        ]

    def forget(self, name: str) -> None:
        """Drop the row and seed runs of a model, so that it is trained again."""
        self._drop(name)
        self._write({"kind": "forgotten", "name": name})

    def remove(self) -> None:
        """Delete the journal of a finished comparison."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _drop(self, name: str) -> None:
        self.finished.pop(name, None)
        self.runs = {key: run for key, run in self.runs.items() if key[0] != name}

    def _replay(self, record: dict[str, Any]) -> None:
        if record["kind"] == "plan":
            self.plan = record["networks"]
            return
        if record["kind"] == "forgotten":
            self._drop(record["name"])
            return
        measured = Measured(Row.from_json(record["row"]), _unpack(record["nats"]), None)
        if record["seed"] is None:
            self.finished[measured.row.name] = measured
        else:
            self.runs[measured.row.name, record["seed"]] = measured

    def _read(self) -> list[dict[str, Any]]:
        assert self.path is not None
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path} cannot be read ({error}); start again with --force") from error

    def _write(self, record: dict[str, Any]) -> None:
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(record))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(self.path, error) from error


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _pack(nats: Any) -> str:
    return base64.b64encode(np.asarray(nats, dtype="<f8").tobytes()).decode()


def _unpack(nats: str) -> Any:
    return np.frombuffer(base64.b64decode(nats), dtype="<f8").astype(np.float64)
