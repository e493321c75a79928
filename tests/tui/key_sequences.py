"""Random sequences of keys, each sequence in one burst, as a terminal delivers what is typed during a stall.

10^5 sequences are 20 blocks of 5,000, steps of `make campaign ARGS=keys`, of 3 CPU minutes each:

    make campaign ARGS="keys"                run all blocks, or go on with the first one that was not run
    make campaign ARGS="keys --share 1/2"    every second block; another process runs --share 2/2 at the same time
    pytest -m campaign "tests/tui/test_key_sequences.py::test_5_000_random_sequences_end_nothing[7]"
                                             one block

A failure names its seed, the number of the sequence, and the sequences of that app: `KeySequences(seed, number + 1)`
repeats it.
"""

from __future__ import annotations

import asyncio
import random
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clusters import busy_cluster, clock_cluster, demo, jobs_cluster
from event_loop_idle import until_quiet
from fake_cluster import FakeCluster
from textual import events
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot
from textual.widgets import Input
from waiting import painted, screen

from gconsole.tui.app import ConsoleApp
from gconsole.tui.keymap.actions import ACTIONS
from gconsole.tui.views.registry import VIEWS

#: Terminals in which the sequences run, in cells; the last ones have room for hardly anything.
SIZES = ((80, 24), (60, 20), (200, 60), (120, 40), (30, 8), (8, 3))
CLUSTERS: Sequence[Callable[[], FakeCluster]] = (
    busy_cluster, FakeCluster, jobs_cluster, lambda: FakeCluster("node1"), demo, clock_cluster,
)  # fmt: skip
#: 10^5 sequences in blocks.
BLOCKS, PER_BLOCK = 20, 5_000
#: Sequences for which one app runs; the first ones of each find views that were never shown.
PER_APP = 40
#: The screen is painted after every so many sequences, and when an app ends.
PAINTS_EVERY = 4
#: Seconds: the longest wait for the effect of one sequence, and between two checks while a timer of the app runs.
DEADLINE_S, POLL_S = 90.0, 0.002
QUITS = frozenset({"q", "ctrl+q", "ctrl+c"})
VIEW_KEYS = [row.key for row in VIEWS]
KEYS = sorted({key for action in ACTIONS for key in action.keys.split(",") if key} | set(VIEW_KEYS))
OTHER_KEYS = [key for key in KEYS if key not in QUITS]
#: Text for prompts, filters and SQL.
TEXTS = ["state:idle", "node:node0[1-3]* -x", "util:<10", "(", "select * from gpus;", "\u00e9\u4e2d", " "]


@dataclass
class Burst:
    """Keys by Textual's names. `resize` first gives the terminal this size, `advances` lets a second pass.

    `leaves`: keys that leave an open dialog come before, in the same burst.
    """

    keys: list[str]
    resize: tuple[int, int] | None = None
    advances: bool = False
    number: int = 0
    leaves: bool = False


class Delivered(NamedTuple):
    """A key and what had the focus when it arrived there."""

    key: str
    screen: str
    is_text: bool

    @property
    def may_quit(self) -> bool:
        """Whether this key may end the app: one that quits, not as text, or the choice of a command by its name."""
        return (self.key in QUITS and not (self.is_text and len(self.key) == 1)) or self.screen == "ConsolePalette"


@dataclass
class KeySequences:
    """`count` sequences drawn from `seed`, run in fresh apps in turn; `quits` counts those that a key ended."""

    seed: int
    count: int
    done: int = 0
    quits: int = 0
    last: list[Burst] = field(default_factory=list)
    pairs: set[tuple[str, str]] = field(default_factory=set)  # (view, key) that met without a dialog between them

    def draw(self) -> Iterator[Burst]:
        """The sequences, each beginning with the key of a view; every key follows every view equally often.

        One of eight begins in the dialog where the sequence before it ended, the others leave it first. A key that
        quits follows every view in one round of four, and is rare elsewhere, because the start of an app takes the time
        of ten sequences.
        """
        rng = random.Random(self.seed)
        pairs: list[tuple[str, str]] = []
        rounds = 0
        for number in range(self.count):
            if not pairs:
                keys = KEYS if rounds % 4 == 0 else OTHER_KEYS
                pairs = [(view, key) for view in VIEW_KEYS for key in keys]
                rng.shuffle(pairs)
                rounds += 1
            leaves = rng.random() < 0.875
            keys = [*pairs.pop()]
            for _ in range(rng.randrange(0, 5)):
                kind = rng.random()
                keys += (
                    [rng.choice(KEYS if kind < 0.1 else OTHER_KEYS)]
                    if kind < 0.8
                    else list(rng.choice(TEXTS))
                    if kind < 0.9
                    else [rng.choice(VIEW_KEYS)]
                )
            resize = rng.choice(SIZES) if rng.random() < 0.1 else None
            yield Burst(keys, resize, rng.random() < 0.1, number, leaves)

    async def run(self) -> None:
        """Type all sequences; raises AssertionError with the newest ones if the app ends without a key that quits."""
        remaining = self.draw()
        app_number = 0
        while self.done < self.count:
            place = app_number + self.seed
            app_number += 1
            cluster = CLUSTERS[place % len(CLUSTERS)]()
            app = cluster.app(others=[demo().source(), FakeCluster("node9").source()] if place % 2 else ())
            delivered = self._follow_keys(app)
            self.last = []
            size = SIZES[place // len(CLUSTERS) % len(SIZES)]
            async with app.run_test(size=size, notifications=True) as pilot:
                for _ in range(PER_APP):
                    sequence = next(remaining, None)
                    if sequence is None or not await self._type(pilot, app, cluster, sequence, delivered):
                        break

    async def _type(
        self, pilot: Pilot[None], app: ConsoleApp, cluster: FakeCluster, sequence: Burst, delivered: list[Delivered]
    ) -> bool:
        """Type one sequence in one burst; False if it ended the app."""
        self.done += 1
        self.last.append(sequence)
        if sequence.resize is not None:
            await pilot.resize_terminal(*sequence.resize)
        if sequence.advances and cluster.names:
            cluster.advance(1)
            cluster.up()
        arrived = asyncio.Event()
        delivered.clear()
        if sequence.leaves and (len(app.screen_stack) > 1 or isinstance(app.focused, Input)):
            sequence.keys[:0] = ["escape"] * len(app.screen_stack)
        for key in sequence.keys:
            app.post_message(key_event(key))
        app.call_later(arrived.set)
        await self._settle(app, arrived)
        assert app._exception is None, f"{self}: {app._exception!r}"
        if not app.is_running or app._exit:
            assert delivered and delivered[-1].may_quit, f"{self}: ended by {delivered[-1:]}"
            self.quits += 1
            return False
        if sequence.number % PAINTS_EVERY == 0:
            painted(app)
        app.shutdown._interrupted_at = 0.0  # a Ctrl-C of another sequence is not the first of two
        return True

    async def _settle(self, app: ConsoleApp, arrived: asyncio.Event) -> None:
        """Wait until all keys have taken effect or the app has ended, without a pause while it has something to do."""
        end = time.monotonic() + DEADLINE_S
        while not ((arrived.is_set() and app.typed.is_idle) or not app.is_running or app._exit):
            assert time.monotonic() < end, f"{self}: no end; the screen:\n{screen(app)}"
            await until_quiet()
            if not app.typed.is_idle:
                await asyncio.sleep(POLL_S)

    def _follow_keys(self, app: ConsoleApp) -> list[Delivered]:
        """The keys that are delivered to the app until it begins to end."""
        delivered: list[Delivered] = []
        deliver = app.typed._deliver

        async def follow(event: events.Event) -> None:
            if isinstance(event, events.Key) and not app._exit and app.screen_stack:
                is_text, name = isinstance(app.focused, Input), type(app.screen).__name__
                delivered.append(Delivered(event.key, name, is_text))
                if len(app.screen_stack) == 1 and not is_text:
                    self.pairs.add((app.views.current, event.key))
            await deliver(event)

        app.typed._deliver = follow
        return delivered

    def __str__(self) -> str:
        return f"seed {self.seed}, sequence {self.last[-1].number if self.last else 0} of {self.last}"


def key_event(key: str) -> events.Key:
    """The event of a key by its name, or of a character, as Textual's own pilot makes it."""
    if len(key) == 1:
        return events.Key(key if key.isalnum() else _character_to_key(key), key)
    try:
        return events.Key(key, unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(key, key))))
    except KeyError:
        return events.Key(key, None)
