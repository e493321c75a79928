"""Commands that listen on a port: serve (the TUI in a browser), api (HTTP and Prometheus)."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .main import EXIT_NOTHING, EXIT_OK
from .options import duration_option, load_target, target

if TYPE_CHECKING:
    from ..config import Config
    from ..web.server import Listen
    from ..web.tokens import ApiToken


@click.command()
@target
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free port", help="TCP port.")
def serve(target: str, overrides: tuple[str, ...], port: int) -> int:
    """Open the TUI in a local browser; TARGET may also be `demo`.

    Listens on 127.0.0.1 only and prints an address with a token that is new at each start. One browser at a
    time: each runs its own console with its own SSH connections. Press Ctrl-C to stop.

    \b
    gconsole serve hosts.toml
    gconsole serve demo --port 8000
    """
    title = f"gconsole {_cluster(target, overrides)}"
    from ..web.terminal.server import HOST
    from ..web.terminal.server import serve as serve_

    def print_address(address: str) -> None:
        click.echo(f"{title}: open in a browser on this machine:\n\n  {address}\n\nPress Ctrl-C to stop.")
        sys.stdout.flush()

    try:
        return asyncio.run(serve_(browser_argv(target, overrides), title, port, print_address))
    except OSError as error:
        click.echo(f"gconsole: cannot listen on {HOST}:{port}: {error.strerror}; try another --port", err=True)
        return EXIT_NOTHING


def browser_argv(target: str, overrides: tuple[str, ...]) -> list[str]:
    """Command of a browser session. `-P` keeps modules of the working directory off the import path."""
    python = [sys.executable, "-P", "-m", "gconsole"]
    if target == "demo":
        return [*python, "demo"]
    return [*python, "tui", *(f"--set={text}" for text in overrides), "--", target]


def _cluster(target: str, overrides: tuple[str, ...]) -> str:
    """Cluster name. Raises ConfigError at start rather than in every browser session."""
    if target != "demo":
        return load_target(target, overrides).cluster
    if overrides:
        raise click.UsageError("--set does not apply to the demo")
    return "demo"


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
    help="File with access tokens (mode 0600), created if missing: TOKEN [NAME [metrics|read|capture|run [EXPIRY]]] a "
    "line.  [default: print a new token]",
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
@duration_option("--for", "for_s", help="Duration.  [default: until Ctrl-C]")
def api(
    target: str, overrides: tuple[str, ...], listen: str, token_file: Path | None, tls_cert: Path | None,
    tls_key: Path | None, allow_run: bool, rate_s: int, for_s: float | None,
) -> int:  # fmt: skip
    """Serve an HTTP API for scripts, dashboards and Prometheus.

    Resources: nodes, GPUs, ranks, jobs, findings, captures, recordings. Every request needs the token. Listening on a
    non-loopback address requires TLS.

    \b
    gconsole api hosts.toml
    gconsole api hosts.toml --token-file ~/.gconsole-token --allow-run
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8091/status
    """
    from ..web.server import ListenError, check_files, listen_at
    from ..web.tokens import ApiToken, TokenError, new_token, tokens_of

    config = load_target(target, overrides)
    try:
        where = listen_at(listen, tls_cert, tls_key)
        check_files(where)
        tokens = (ApiToken(new_token()),) if token_file is None else tokens_of(token_file)
    except (ListenError, TokenError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    token_text = tokens[0].value if token_file is None else f"in {token_file}"
    return asyncio.run(
        _serve_api(config, where, tokens, token_text, allow_run, rate_s, math.inf if for_s is None else for_s)
    )


async def _serve_api(
    config: Config, listen: Listen, tokens: tuple[ApiToken, ...], token_text: str, allow_run: bool, rate_s: int,
    for_s: float,
) -> int:  # fmt: skip
    """Serve until `for_s` seconds have passed or a signal arrives; returns the exit code."""
    from ..core.store import Store
    from ..monitor import headless
    from ..records import Log
    from ..runtime.console import Console, sessions_folder_of
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
    auth = TokenAuth(tokens, names_of(listen), "loopback" if listen.is_loopback else "any", listen.scheme)
    app = make_app(context, described(OPERATIONS), auth, rate_s)

    def log_error(text: str) -> None:
        hub.publish_own(Log(source="console", severity="error", text=text))

    async with serving(app, listen, server_socket, log_error):
        await console.start()
        address = listen.url(server_socket.getsockname()[1])
        click.echo(f"{address}\ntoken: {token_text}\n\nAPI documentation: {address}/docs. Press Ctrl-C to stop.")
        sys.stdout.flush()
        watching = asyncio.create_task(
            headless.watch(
                store, hub, fleet, for_s, headless.ProgressLine(store, None), findings=findings, stalls=console.stalls
            ),
            name="watch",
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
