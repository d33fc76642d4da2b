"""Registry of the served models, loaded on first use."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chainrule import api
from chainrule.errors import ChainruleError, NotFoundError, UsageError
from chainrule.model import Model, read_config
from chainrule.server.errors import ApiError, Limits
from chainrule.server.json_body import printable_name
from chainrule.server.logs import LOG, add_log_fields
from chainrule.server.threads import run_in_daemon_thread
from chainrule.server.worker import Scheduler
from chainrule.storage import verified_dir

SHARDED: Final = "sharded-ngram"
"""Family whose models can be connected to shard servers."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory and its scheduler."""

    name: str
    model: Model
    scheduler: Scheduler


class ModelRegistry:
    """Models by name; each is loaded once, even if several requests need it at the same time."""

    def __init__(
        self,
        folders: Sequence[Path],
        limits: Limits | None = None,
        *,
        device: str = "auto",
        shard_servers: Sequence[str] = (),
        shard_server_key: str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._device = device
        self._shard_servers, self._shard_server_key = tuple(shard_servers), shard_server_key
        families = {path: read_family(path) for path in folders}
        self._folders = assign_names(folders)
        self._sharded = [name for name, path in self._folders.items() if families[path] == SHARDED]
        if shard_servers:
            self._check_shard_servers()
        # Read once, because the folder may be moved while its model is served.
        self._created = {name: int(path.stat().st_mtime) for name, path in self._folders.items()}
        self._loading: dict[str, asyncio.Task[LoadedModel]] = {}

    def names(self) -> list[str]:
        """Return the model names in the order of the folders."""
        return list(self._folders)

    def sharded(self) -> list[str]:
        """Return the names of the sharded n-gram models."""
        return self._sharded

    async def get(self, name: str | None) -> LoadedModel:
        """Return a model, loading it if necessary; None is the first model. A failed load is retried."""
        model_name = self._known(name)
        add_log_fields(model=model_name)
        if model_name not in self._loading:
            self._loading[model_name] = asyncio.create_task(self._load(model_name))
            self._loading[model_name].add_done_callback(lambda task: self._forget_failed(model_name, task))
        # Cancelling one request must not cancel the load that others wait for.
        return await asyncio.shield(self._loading[model_name])

    def description(self, name: str) -> dict[str, Any]:
        """Return the model object of OpenAI's API; `created` is the modification time of the folder."""
        known = self._known(name)
        return {"id": known, "object": "model", "created": self._created[known], "owned_by": "chainrule"}

    def stop(self) -> None:
        """Let the worker threads end after their current step, without waiting."""
        for task in self._loading.values():
            if _is_loaded(task):
                task.result().scheduler.stop()

    async def close(self) -> None:
        """Stop the worker threads and wait for them; cancel running loads."""
        for task in list(self._loading.values()):
            if _is_loaded(task):
                await task.result().scheduler.close()
            else:
                task.cancel()

    def _known(self, name: str | None) -> str:
        model_name = next(iter(self._folders)) if name is None else name
        if model_name not in self._folders:
            message = (
                f"there is no model '{printable_name(model_name)}' here; choose one of {', '.join(self._folders)}"
            )
            raise ApiError(404, message, param="model", code="model_not_found")
        return model_name

    async def _load(self, name: str) -> LoadedModel:
        try:
            model = await run_in_daemon_thread(
                lambda: self._read(name),
            )
        except (ChainruleError, OSError, MemoryError) as error:
            LOG.error("the model %s cannot be loaded: %s", name, str(error) or type(error).__name__)
            raise ApiError(
                503, f"the model '{name}' cannot be loaded; the server's log says why", code="model_not_loaded"
            ) from error
        return LoadedModel(name, model, Scheduler(model, rows=self.limits.rows))

    def _read(self, name: str) -> Model:
        """Load a model; a sharded one is connected to the shard servers."""
        servers = self._shard_servers if name in self._sharded else ()
        return api.load(
            self._folders[name],
            kind="language model",
            device=self._device,
            shard_servers=servers,
            shard_server_key=self._shard_server_key,
        )

    def _check_shard_servers(self) -> None:
        """Raise if a shard server cannot be used, so that the server does not start."""
        if not self._sharded:
            raise UsageError("--shard-server is for sharded models, but there is none among the folders; omit it")
        for name in self._sharded:
            self._read(name)

    def _forget_failed(self, name: str, task: asyncio.Task[LoadedModel]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._loading.pop(name, None)


def _is_loaded(task: "asyncio.Task[LoadedModel]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def read_family(path: Path) -> str:
    """Return the family; raise ModelFileError unless `path` is a complete language-model folder."""
    return str(read_config(verified_dir.open_dir(path))["family"])


def assign_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Name the folders by their last component; a duplicate is prefixed with its parents: `b/ngram`."""
    if not folders:
        raise UsageError("there is no model to serve; give at least one folder")
    named: dict[str, Path] = {}
    for path in folders:
        if not path.exists():
            raise NotFoundError(f"there is no model folder {path}; make one with chainrule train")
        parts = path.resolve().parts
        names = ("/".join(parts[-count:]) for count in range(1, len(parts)))
        name = next((name for name in names if name not in named), None)
        if name is None or path.resolve() in [known.resolve() for known in named.values()]:
            raise UsageError(f"{path} is given twice; give each model once")
        named[name] = path
    return named
