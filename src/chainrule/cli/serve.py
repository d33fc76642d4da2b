"""`chainrule serve`: serve models over HTTP."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import say
from chainrule.errors import MissingExtra, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address that the server listens on, and who may connect."""

    host: Annotated[str, typer.Option(help="Address to listen on; the default accepts local connections only.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8080
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Require the API key in this file (header Authorization: Bearer KEY)."),
    ] = None
    allow_public: Annotated[
        bool, typer.Option("--allow-public", help="Allow connections from other machines without an API key.")
    ] = False

    def check(self, is_public: bool) -> None:
        """Raise UsageError if other machines can connect without a key and this was not requested."""
        if is_public and self.api_key_file is None and not self.allow_public:
            raise UsageError(
                f"{self.host} can be reached from other machines, but there is no key;\n"
                "give --api-key-file FILE, or --allow-public to accept requests from anyone"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardServers:
    """Servers that have the shards of a sharded model."""

    shard_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address of a server that has shards of a sharded model, http://HOST:PORT. Repeatable.",
        ),
    ] = None
    shard_server_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the API key of the shard servers.")
    ] = None


@options.expand_option_groups()
def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help="Folders of trained models.")],
    *,
    address: Address,
    max_seconds: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Timeout of a request in seconds.")
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(min=0, max=86_400, help="Grace period for running requests at shutdown, in seconds."),
    ] = 5.0,
    shard_servers: ShardServers,
    device: options.Device = "auto",
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Disable the access log; warnings and errors are still logged.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=65_536, hidden=True, help="Maximum batch size of a model.")] = 256,
) -> None:
    """Serve models over HTTP: OpenAI completions API and web page.

    Also provides endpoints for scores and next-token probabilities.

    Examples: chainrule serve runs/ngram5 runs/lstm --port 8080

    chainrule serve runs/sharded5 --shard-server http://10.0.0.1:8080 --shard-server http://10.0.0.2:8080
    """
    try:
        from chainrule.server import app, errors, http, logs, middleware
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chainrule"):
            raise
        raise MissingExtra("serving needs fastapi and uvicorn: pip install 'chainrule[serve]'") from error

    host, shard_key_file = address.host, shard_servers.shard_server_key_file
    is_public = not http.is_loopback(host)
    address.check(is_public)
    limits = errors.Limits(seconds=max_seconds, rows=rows, grace_seconds=grace)
    application = app.create_app(
        models,
        limits=limits,
        api_key=None if address.api_key_file is None else middleware.read_key(address.api_key_file),
        hosts=None if is_public else middleware.LOOPBACK | {host.lower()},
        device=options.check_device(device),
        shard_servers=shard_servers.shard_server or (),
        shard_server_key=None if shard_key_file is None else middleware.read_key(shard_key_file),
    )
    listener = http.bind(host, address.port)
    logs.log_to_stderr(quiet)
    print(http.url(host, listener), flush=True)
    address_note = f" on all addresses of this machine ({host})" if http.is_wildcard(host) else ""
    say(f"serving {', '.join(application.state.names)}{address_note}; stop with Ctrl-C")
    http.run(application, listener, limits)
