"""`gconsole api TARGET`: what a console knows and can do, over HTTP."""

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
    from ..web.listen import Listen


@click.command()
@target
@click.option("--listen", default="127.0.0.1:8091", show_default=True, metavar="HOST:PORT", help="Port 0 is any.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the token is (0600); one that is not there is made.  [default: a new one, printed]",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate chain (PEM).")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its key (PEM).")
@click.option("--allow-run", is_flag=True, help="Clients may start and stop jobs, whatever [console] read_only says.")
@click.option(
    "--rate",
    "rate_s",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Requests a second of one address.",
)
@click.option("--for", "for_s", type=DurationType(), default=math.inf, help="Serve this long; without it until Ctrl-C.")
def api(
    target: str, overrides: tuple[str, ...], listen: str, token_file: Path | None, tls_cert: Path | None,
    tls_key: Path | None, allow_run: bool, rate_s: int, for_s: float,
) -> int:  # fmt: skip
    """Answer scripts, dashboards and Prometheus: nodes, GPUs, ranks, jobs, findings, captures, recordings.

    Every request carries a token. Anything but this machine itself needs TLS files.

    \b
    gconsole api hosts.toml
    gconsole api hosts.toml --token-file ~/.gconsole-token --allow-run
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8091/status
    """
    from ..web.listen import BadListen, check_files, listen_at
    from ..web.tokens import BadToken, new_token, token_of

    config = load_target(target, overrides)
    try:
        where = listen_at(listen, tls_cert, tls_key)
        check_files(where)
        token = new_token() if token_file is None else token_of(token_file)
    except (BadListen, BadToken) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    told = token if token_file is None else f"in {token_file}"
    return asyncio.run(_serve(config, where, token, told, allow_run, rate_s, for_s))


async def _serve(
    config: Config, listen: Listen, token: str, told: str, allow_run: bool, rate_s: int, for_s: float
) -> int:
    """Watch the fleet and answer, until the time is up or somebody ends it; an exit code."""
    from ..core.store import Store
    from ..headless import batch
    from ..runtime import Console, sessions_folder_of
    from ..web.app import make_app
    from ..web.auth import Door
    from ..web.context import Served
    from ..web.describe import described
    from ..web.listen import names_of, opened
    from ..web.resources import OPERATIONS
    from ..web.server import serving
    from .live import on_signals

    try:
        at = opened(listen)
    except OSError as error:
        click.echo(f"gconsole: cannot listen on {listen.host}:{listen.port}: {error.strerror}; try another --listen",
                   err=True)  # fmt: skip
        return EXIT_NOTHING
    interrupted = on_signals()
    console = Console(config, store=Store(), allow_run=allow_run)
    store, hub, fleet, findings = console.store, console.bus, console.fleet, console.findings
    served = Served(config, hub, store, fleet, findings, sessions_folder_of(config))
    door = Door(token, names_of(listen), listen.is_loopback, listen.scheme)
    app = make_app(served, described(OPERATIONS), door, rate_s)
    async with serving(app, served, listen, at):
        await console.start()
        say(listen.url(at.getsockname()[1]), told)
        watching = asyncio.create_task(
            batch.watch(store, hub, fleet, for_s, batch.ProgressLine(store, None), findings=findings), name="watch"
        )
        try:
            await asyncio.wait({watching, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            served.closing.set()
    watching.cancel()
    try:
        await watching
    except asyncio.CancelledError:
        pass  # its own end has been: nodes told, connections closed
    await console.stop()
    return EXIT_OK


def say(address: str, token: str) -> None:
    """Where it answers, and what to say to it: once, on stdout."""
    click.echo(f"{address}\ntoken: {token}\n\nit tells of itself at {address}/docs; Ctrl-C ends it")
    sys.stdout.flush()
