"""`gconsole serve`: one console whose screens are in browsers.

    nodes --one SSH connection each--> Console (bus, store, fleet, findings)
                                          |           one evaluation of findings and stalls for all
              VisitorApp per visitor: snapshots of that store; own view, cursor, filters, pause
                                          |           VisitorControl: looks; acts only if permitted
              BrowserDriver -> bounded queue -> websocket -> page          (keys: the other way round)

All of it is in one process and one event loop. A visitor's frames are skipped while output waits for their browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from ..config.model import ConfigError
from ..text.documents import NewSecret
from .main import EXIT_NOTHING
from .options import json_option, load_target, target
from .terminal import print_start

if TYPE_CHECKING:
    from textual.app import App

    from ..config import Config
    from ..runtime.console import Console
    from ..tui.visitor_app import VisitorApp

#: Seconds between two checks whether hosts.toml was saved.
HOSTS_EVERY_S = 1.0


@click.command()
@target
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free port", help="TCP port.")
@click.option(
    "--visitors", type=click.IntRange(1, 64), default=8, show_default=True, help="Max browsers connected at a time."
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Also print an address whose visitors may capture, record and change the fleet.",
)
@json_option
def serve(target: str, overrides: tuple[str, ...], port: int, visitors: int, allow_actions: bool, as_json: bool) -> int:
    """Show the TUI in local browsers, to several visitors; TARGET may also be `demo`.

    Listens on 127.0.0.1 only and prints an address with a token that is new at each start. All visitors share one
    connection to each node; each has a screen with its own view, cursor and filters, and may look, not act. Press
    Ctrl-C to stop.

    \b
    gconsole serve hosts.toml
    gconsole serve hosts.toml --allow-actions --visitors 20
    gconsole serve demo --port 8000
    """
    with _configuration(target, overrides) as (config, read):
        try:
            return asyncio.run(_serve(config, read, target, port, visitors, allow_actions, as_json))
        except OSError as error:
            click.echo(f"gconsole: cannot listen on 127.0.0.1:{port}: {error.strerror}; try another --port", err=True)
            return EXIT_NOTHING


@contextlib.contextmanager
def _configuration(target: str, overrides: tuple[str, ...]) -> Iterator[tuple[Config, Callable[[], Config] | None]]:
    """The configuration of a target, or of a demo cluster that ends with the context; and how to read it again."""
    if target != "demo":
        yield load_target(target, overrides), partial(load_target, target, overrides, quiet=True)
        return
    if overrides:
        raise click.UsageError("--set does not apply to the demo")
    from ..config import load
    from ..demo import DemoError, demo_cluster

    for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C during start-up
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_cluster(4, 8, 8) as cluster:
            yield load(str(cluster.hosts), environ={}), None
    except DemoError as error:
        raise click.ClickException(str(error)) from error


async def _serve(
    config: Config, read: Callable[[], Config] | None, target: str, port: int, visitors: int, allow_actions: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Serve until SIGINT, SIGTERM or SIGHUP; returns the exit code. Raises OSError if the port is in use."""
    os.environ["TEXTUAL_FPS"] = "60"  # read when Textual is imported
    from ..runtime.console import Console
    from ..web.terminal.server import ConsoleServer

    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not signalled.done():
            signalled.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    screens = _Screens(target)
    console = Console(config, prompt=screens.read_secret if allow_actions else None, own_checks=True)
    screens.console = console
    title = f"gconsole {config.cluster}"
    server = ConsoleServer(screens.open, title, visitors=visitors, allow_actions=allow_actions)
    async with server.open(port) as address, console.running():
        tasks = [asyncio.create_task(_watch(console, signalled))]
        if config.path and read:
            tasks.append(asyncio.create_task(_follow_hosts(console, config, read)))
        acting = f"\n\nTo act, not only to look:\n\n  {server.acting_address}" if allow_actions else ""
        document = {
            "schema": "gconsole.serve/1", "url": NewSecret(address),
            "acting_url": NewSecret(server.acting_address) if allow_actions else None,
        }  # fmt: skip
        text = f"{title}: open in a browser on this machine:\n\n  {address}{acting}\n\nPress Ctrl-C to stop."
        print_start(document, text, as_json=as_json)
        received = await signalled
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return 0 if received == signal.SIGINT else 128 + received


async def _watch(console: Console, signalled: asyncio.Future[int]) -> None:
    """Evaluate findings and diagnose stalled jobs, once for all visitors."""
    from ..monitor import headless

    await headless.watch(
        console.store, console.bus, console.fleet, math.inf, headless.ProgressLine(console.store, None),
        findings=console.findings, is_over=signalled.done, stalls=console.stalls,
    )  # fmt: skip


async def _follow_hosts(console: Console, config: Config, read: Callable[[], Config]) -> None:
    """Apply hosts.toml after it was saved; an invalid file is reported in Events and changes nothing."""
    from ..config.diff import HostsFile
    from ..records import Log

    assert config.path is not None
    hosts = HostsFile(config.path, read)
    while True:
        await asyncio.sleep(HOSTS_EVERY_S)
        if hosts.is_saved():
            try:
                await console.fleet.apply(await asyncio.to_thread(hosts.read))
            except (ConfigError, click.UsageError) as error:
                console.bus.publish_own(Log(source="console", severity="error", text=f"{error}; fleet unchanged"))


class _Screens:
    """Makes the screens of visitors; those who may act answer the prompts of logins."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._watchers: defaultdict[str, set[str]] = defaultdict(set)
        self._acting: list[VisitorApp] = []
        self._arrival = asyncio.Event()
        self.console: Console

    def open(self, may_act: bool) -> App[None]:
        """A screen over the console's store."""
        from ..tui.keymap.file import keys_path, read_keys
        from ..tui.keymap.hints import every_action
        from ..tui.theme.catalog import ThemeCatalog
        from ..tui.visitor_app import VisitorApp

        console, config = self.console, self.console.fleet.config
        app = VisitorApp(
            console.store, console.fleet, may_act=may_act, watchers=self._watchers, cluster=config.cluster,
            expected_nodes=[node.name for node in config.nodes],
            staging=lambda: (console.fleet.staging.staged, console.fleet.staging.expected),
            themes=ThemeCatalog.of_this_user(), keys=read_keys(keys_path(), every_action()),
            own_checks=console.own_checks.of if console.own_checks is not None else lambda node: (),
            target=str(config.path.absolute()) if config.path else self._target,
        )  # fmt: skip
        if may_act:
            self._acting.append(app)
            self._arrival.set()
        return app

    async def read_secret(self, login: str, prompt: str) -> str | None:
        """What a visitor who may act types; waits for such a visitor, and asks the next one if they leave."""
        while True:
            self._acting = [app for app in self._acting if not app._exit]
            if not self._acting:
                self._arrival.clear()
                await self._arrival.wait()
                continue
            app = self._acting[-1]
            answer = asyncio.ensure_future(app.login_prompts.read_secret(login, prompt))
            try:
                while not answer.done() and not app._exit:
                    await asyncio.wait({answer}, timeout=0.2)
            finally:
                if not answer.done():
                    answer.cancel()
            if answer.done() and not answer.cancelled():
                return answer.result()
