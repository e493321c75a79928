"""`gconsole api TARGET`: the HTTP API."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .main import EXIT_NOTHING, EXIT_OK
from .options import DurationType, load_target, target

if TYPE_CHECKING:
    from ..config import Config
    from ..web.server import Listen


@click.command()
@target
@click.option(
    "--listen",
    default="127.0.0.1:8091",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 = pick a free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the access token (mode 0600), created if missing.  [default: print a new token]",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate chain (PEM).")
@click.option(
    "--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Private key of the certificate (PEM)."
)
@click.option("--allow-run", is_flag=True, help="Allow clients to start and stop jobs, overriding [console] read_only.")
@click.option(
    "--rate",
    "rate_s",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Rate limit per client address, requests/s.",
)
@click.option("--for", "for_s", type=DurationType(), default=math.inf, help="Duration.  [default: until Ctrl-C]")
def api(
    target: str, overrides: tuple[str, ...], listen: str, token_file: Path | None, tls_cert: Path | None,
    tls_key: Path | None, allow_run: bool, rate_s: int, for_s: float,
) -> int:  # fmt: skip
    """Serve an HTTP API for scripts, dashboards and Prometheus.

    Resources: nodes, GPUs, ranks, jobs, findings, captures, recordings. Every request needs the token. Listening on a
    non-loopback address requires TLS.

    \b
    gconsole api hosts.toml
    gconsole api hosts.toml --token-file ~/.gconsole-token --allow-run
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8091/status
    """
    from ..web.auth import TokenError, new_token, token_of
    from ..web.server import ListenError, check_files, listen_at

    config = load_target(target, overrides)
    try:
        where = listen_at(listen, tls_cert, tls_key)
        check_files(where)
        token = new_token() if token_file is None else token_of(token_file)
    except (ListenError, TokenError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    token_text = token if token_file is None else f"in {token_file}"
    return asyncio.run(_serve(config, where, token, token_text, allow_run, rate_s, for_s))


async def _serve(
    config: Config, listen: Listen, token: str, token_text: str, allow_run: bool, rate_s: int, for_s: float
) -> int:
    """Serve until `for_s` seconds have passed or a signal arrives; returns the exit code."""
    from ..core.store import Store
    from ..headless import batch
    from ..records import Log
    from ..runtime import Console, sessions_folder_of
    from ..web.app import make_app
    from ..web.auth import TokenAuth
    from ..web.openapi import described
    from ..web.operation import WebContext
    from ..web.resources import OPERATIONS
    from ..web.server import names_of, open_socket, serving
    from .live import on_signals

    try:
        server_socket = open_socket(listen)
    except OSError as error:
        click.echo(f"gconsole: cannot listen on {listen.host}:{listen.port}: {error.strerror}; try another --listen",
                   err=True)  # fmt: skip
        return EXIT_NOTHING
    interrupted = on_signals()
    console = Console(config, store=Store(), allow_run=allow_run)
    store, hub, fleet, findings = console.store, console.bus, console.fleet, console.findings
    context = WebContext(config, hub, store, fleet, findings, sessions_folder_of(config))
    auth = TokenAuth(token, names_of(listen), "loopback" if listen.is_loopback else "any", listen.scheme)
    app = make_app(context, described(OPERATIONS), auth, rate_s)

    def log_error(text: str) -> None:
        hub.publish_own(Log(source="console", severity="error", text=text))

    async with serving(app, listen, server_socket, log_error):
        await console.start()
        _print_address(listen.url(server_socket.getsockname()[1]), token_text)
        watching = asyncio.create_task(
            batch.watch(store, hub, fleet, for_s, batch.ProgressLine(store, None), findings=findings), name="watch"
        )
        try:
            await asyncio.wait({watching, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            context.closing.set()
    watching.cancel()
    try:
        await watching
    except asyncio.CancelledError:
        pass  # its own cleanup has run
    await console.stop()
    return EXIT_OK


def _print_address(address: str, token: str) -> None:
    click.echo(f"{address}\ntoken: {token}\n\nAPI documentation: {address}/docs. Press Ctrl-C to stop.")
    sys.stdout.flush()
