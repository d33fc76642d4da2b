"""`chainrule serve`: models over HTTP, with a page to play with."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import say


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help="The folders of trained models.")],
    host: Annotated[
        str, typer.Option(help="Where to listen; by default this machine alone can ask.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask for the key in this file: Authorization: Bearer KEY.")
    ] = None,
    allow_public: Annotated[
        bool, typer.Option("--allow-public", help="Listen beyond this machine although there is no key.")
    ] = False,
    max_seconds: Annotated[float, typer.Option(min=0.001, max=86_400, help="Time for one request.")] = 60.0,
    grace: Annotated[
        float,
        typer.Option(
            min=0, max=86_400, help="Seconds that running requests have to end when the server is stopped."
        ),
    ] = 5.0,
    device: options.Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each request.")] = False,
    rows: Annotated[int, typer.Option(min=1, max=65_536, hidden=True, help="Texts a model steps together.")] = 256,
) -> None:
    """Serve models over HTTP: OpenAI's completions API and a page.

    Scores and next tokens are served as well.

    Example: chainrule serve runs/ngram5 runs/lstm --port 8080
    """
    from chainrule.errors import MissingExtra, UsageError

    try:
        from chainrule.server import app, keys, limits, logs, serving
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chainrule"):
            raise
        raise MissingExtra("serving needs fastapi and uvicorn: pip install 'chainrule[serve]'") from error

    is_public = not serving.is_loopback(host)
    if is_public and api_key_file is None and not allow_public:
        raise UsageError(
            f"{host} can be reached from other machines, and there is no key;\n"
            "give --api-key-file FILE, or --allow-public where everybody may ask"
        )
    key = None if api_key_file is None else keys.read_key(api_key_file)
    bounds = limits.Limits(seconds=max_seconds, rows=rows, grace_seconds=grace)
    hosts = None if is_public else keys.LOOPBACK | {host.lower()}
    application = app.create_app(models, limits=bounds, api_key=key, hosts=hosts, device=options.device(device))
    listener = serving.bind(host, port)
    logs.to_stderr(quiet)
    print(serving.url(host, listener), flush=True)
    where = f" on all addresses of this machine ({host})" if serving.is_everywhere(host) else ""
    say(f"serving {', '.join(application.state.names)}{where}; stop with Ctrl-C")
    serving.run(application, listener, bounds)
