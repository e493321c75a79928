"""Commands for programs: api (HTTP and Prometheus), mcp (the Model Context Protocol)."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..text.documents import NewSecret
from ..text.sanitize import printable
from .main import EXIT_NOTHING, EXIT_OK
from .options import duration_option, json_option, load_target, overrides_option, sessions_folder, target
from .terminal import print_start, print_text

if TYPE_CHECKING:
    from ..config import Config
    from ..web.server import Listen
    from ..web.tokens import ApiToken


#: An origin as browsers send it: no path, no wildcard.
_ORIGIN: Final = re.compile(r"https?://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:]{2,45}\])(?::[0-9]{1,5})?")


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
@click.option(
    "--allow-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Allow pages of this site, such as https://grafana.example, to send requests (CORS). Repeatable.",
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
@json_option
def api(
    target: str, overrides: tuple[str, ...], listen: str, token_file: Path | None, tls_cert: Path | None,
    tls_key: Path | None, origins: tuple[str, ...], allow_run: bool, rate_s: int, for_s: float | None, as_json: bool,
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

    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise click.BadParameter(f"{origin!r} is not SCHEME://HOST[:PORT]", param_hint="--allow-origin")
    config = load_target(target, overrides)
    try:
        where = listen_at(listen, tls_cert, tls_key)
        check_files(where)
        tokens = (ApiToken(new_token()),) if token_file is None else tokens_of(token_file)
    except (ListenError, TokenError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error

    def print_address(address: str) -> None:
        token = NewSecret(tokens[0].value) if token_file is None else None
        document = {
            "schema": "gconsole.api/1", "url": address, "token": token,
            "access_file": None if token_file is None else str(token_file),
        }  # fmt: skip
        text = f"{address}\ntoken: {token or f'in {token_file}'}\n\n"
        print_start(document, f"{text}API documentation: {address}/docs. Press Ctrl-C to stop.", as_json=as_json)

    return asyncio.run(
        _serve_api(
            config, where, tokens, print_address, origins, allow_run, rate_s, math.inf if for_s is None else for_s
        )
    )


async def _serve_api(
    config: Config, listen: Listen, tokens: tuple[ApiToken, ...], on_address: Callable[[str], None],
    origins: tuple[str, ...], allow_run: bool, rate_s: int, for_s: float,
) -> int:  # fmt: skip
    """Serve until `for_s` seconds have passed or a signal arrives; returns the exit code."""
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
    console = Console(config, allow_run=allow_run)
    store, hub, fleet, findings = console.store, console.bus, console.fleet, console.findings
    context = WebContext(config, hub, store, fleet, findings, sessions_folder_of(config))
    auth = TokenAuth(
        tokens, names_of(listen), "loopback" if listen.is_loopback else "any", listen.scheme,
        origins=frozenset(origin.lower() for origin in origins),
    )  # fmt: skip
    app = make_app(context, described(OPERATIONS), auth, rate_s)

    def log_error(text: str) -> None:
        hub.publish_own(Log(source="console", severity="error", text=text))

    context.uploads.open()
    async with serving(app, listen, server_socket, log_error):
        await console.start()
        on_address(listen.url(server_socket.getsockname()[1]))
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
    context.queries.close()
    context.uploads.close()
    return EXIT_OK


@click.command()
@click.argument("source", metavar="[TARGET|SESSION]", required=False)
@overrides_option
@sessions_folder
def mcp(source: str | None, overrides: tuple[str, ...], folder: Path) -> int:
    """Serve the Model Context Protocol on stdin and stdout, for programs that use language models.

    Live nodes of TARGET, or a recorded SESSION. Read-only: tools for status, findings, verdicts with evidence, stacks,
    crash verdicts, checks and SQL; none starts, stops or changes anything. Secrets are hidden. Results have a budget of
    tokens; the tool `more` returns the rest. Requires the extra mcp: pip install 'gconsole[mcp]'.

    \b
    gconsole mcp hosts.toml
    gconsole mcp night
    """
    if importlib.util.find_spec("mcp") is None:
        raise click.UsageError("the Python package mcp is not installed; install it: pip install 'gconsole[mcp]'")
    from .main import HOSTS
    from .query import recorded_at

    recorded = recorded_at(source, folder) if source is not None else None
    return asyncio.run(_serve_mcp(recorded, source or HOSTS, overrides, folder))


async def _serve_mcp(recorded: Path | None, target: str, overrides: tuple[str, ...], folder: Path) -> int:
    """Serve a session at a path, or a target, until stdin ends; returns the exit code."""
    from ..runtime.live import AsyncFleet, NoNodeReached
    from ..runtime.mcp_server import FleetEvidence, SessionEvidence
    from ..runtime.mcp_server import serve as serve_tools
    from ..runtime.recorded import RecordedSession

    if recorded is not None:
        with RecordedSession(recorded) as session:
            await serve_tools(SessionEvidence(session))
        return EXIT_OK
    config = load_target(target, overrides, sessions=folder)
    try:
        async with AsyncFleet(config) as fleet:
            await serve_tools(FleetEvidence(fleet))
    except NoNodeReached as error:
        print_text(printable(f"gconsole: {error}"), err=True)
        return EXIT_NOTHING
    return EXIT_OK
