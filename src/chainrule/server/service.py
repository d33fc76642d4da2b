"""The models a server offers: each under its name, loaded when first asked for.

Not here: what is asked of a model (scheduler.py) and how it is asked (the routes).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule import api, artifact, folder
from chainrule.errors import ChainruleError, ModelFileError, NotFoundError, UsageError
from chainrule.model import Model
from chainrule.server.aside import in_daemon_thread
from chainrule.server.body import shown
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits
from chainrule.server.logs import LOG, note
from chainrule.server.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is in memory, and what runs the requests for it."""

    name: str
    model: Model
    scheduler: Scheduler


class Service:
    """Models by name; each is loaded once, however many ask for it at the same time."""

    def __init__(self, folders: Sequence[Path], limits: Limits | None = None, *, device: str = "auto") -> None:
        self.limits = limits or Limits()
        self._device = device
        for path in folders:
            check_language_model(path)
        self._folders = named(folders)
        # Read once: a folder may be moved while its model is served.
        self._created = {name: int(path.stat().st_mtime) for name, path in self._folders.items()}
        self._loading: dict[str, asyncio.Task[Loaded]] = {}

    def names(self) -> list[str]:
        """The names of the models, in the order they were given."""
        return list(self._folders)

    async def loaded(self, name: str | None) -> Loaded:
        """The model of a name, or the first where there is none; a load that failed is tried again."""
        chosen = self._known(name)
        note(model=chosen)
        if chosen not in self._loading:
            self._loading[chosen] = asyncio.create_task(self._load(chosen))
            self._loading[chosen].add_done_callback(lambda task: self._forget_failed(chosen, task))
        # Who asked first may go away; the others still wait for the same load.
        return await asyncio.shield(self._loading[chosen])

    def description(self, name: str) -> dict[str, Any]:
        """A model as OpenAI describes one; it was created when its folder was."""
        known = self._known(name)
        return {"id": known, "object": "model", "created": self._created[known], "owned_by": "chainrule"}

    def stop(self) -> None:
        """Let the threads of all models end after their current step, without waiting for it."""
        for task in self._loading.values():
            if _is_loaded(task):
                task.result().scheduler.stop()

    async def close(self) -> None:
        """End what runs for the models."""
        for task in list(self._loading.values()):
            if _is_loaded(task):
                await task.result().scheduler.close()
            else:
                task.cancel()

    def _known(self, name: str | None) -> str:
        chosen = next(iter(self._folders)) if name is None else name
        if chosen not in self._folders:
            message = f"there is no model '{shown(chosen)}' here; choose one of {', '.join(self._folders)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return chosen

    async def _load(self, name: str) -> Loaded:
        try:
            model = await in_daemon_thread(lambda: api.load(self._folders[name], device=self._device))
        except (ChainruleError, OSError, MemoryError) as error:
            LOG.error("the model %s cannot be loaded: %s", name, str(error) or type(error).__name__)
            raise ApiError(
                503, f"the model '{name}' cannot be loaded; the server's log says why", code="model_not_loaded"
            ) from error
        return Loaded(name, model, Scheduler(model, rows=self.limits.rows))

    def _forget_failed(self, name: str, task: asyncio.Task[Loaded]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._loading.pop(name, None)


def _is_loaded(task: "asyncio.Task[Loaded]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def check_language_model(path: Path) -> None:
    """Refuse now what can never be served: anything but the whole folder of a language model. Nothing is loaded."""
    config = folder.read_json(folder.read(path), artifact.CONFIG)
    if "task" in config:
        raise ModelFileError(f"{path} is no language model: {artifact.use_of(str(config['task']), path)}")
    if "family" not in config:
        raise ModelFileError(f"{path} holds a tokenizer, not a model; give a model folder")


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders under their own names; of two alike the second takes its parents' names along: `b/ngram`."""
    if not folders:
        raise UsageError("there is no model to serve; give at least one folder")
    found: dict[str, Path] = {}
    for path in folders:
        if not path.exists():
            raise NotFoundError(f"there is no model folder {path}; make one with chainrule train")
        parts = path.resolve().parts
        names = ("/".join(parts[-count:]) for count in range(1, len(parts)))
        name = next((name for name in names if name not in found), None)
        if name is None or path.resolve() in [known.resolve() for known in found.values()]:
            raise UsageError(f"{path} is given twice; name each model once")
        found[name] = path
    return found
