"""Random sequences of keys, each sequence in one burst, as a terminal delivers what is typed during a stall."""

from __future__ import annotations

import asyncio
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from clusters import busy_cluster, clock_cluster, demo, jobs_cluster
from fake_cluster import FakeCluster
from textual import events
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot
from waiting import until

from gconsole.tui.app import ConsoleApp
from gconsole.tui.keymap.actions import ACTIONS
from gconsole.tui.views.registry import VIEWS

#: Terminals in which the sequences run, in cells; the last ones have room for hardly anything.
SIZES = ((80, 24), (60, 20), (200, 60), (120, 40), (30, 8), (8, 3))
CLUSTERS: Sequence[Callable[[], FakeCluster]] = (
    busy_cluster, FakeCluster, jobs_cluster, lambda: FakeCluster("node1"), demo, clock_cluster,
)  # fmt: skip
#: Sequences for which one app runs; the first ones of each find views that were never shown.
PER_APP = 25
QUITS = frozenset({"q", "ctrl+q", "ctrl+c"})
VIEW_KEYS = [row.key for row in VIEWS]
KEYS = sorted({key for action in ACTIONS for key in action.keys.split(",") if key} | set(VIEW_KEYS))
#: Text for prompts, filters and SQL.
TEXTS = ["state:idle", "node:node0[1-3]* -x", "util:<10", "(", "select * from gpus;", "\u00e9\u4e2d", " "]


@dataclass
class Burst:
    """Keys by Textual's names; `resize` first gives the terminal this size, `ticks` seconds pass."""

    keys: list[str]
    resize: tuple[int, int] | None = None
    advances: bool = False
    number: int = 0


@dataclass
class KeySequences:
    """`count` sequences drawn from `seed`, run in fresh apps in turn; `run` returns how many ended the app by a key."""

    seed: int
    count: int
    done: int = 0
    quits: int = 0
    last: list[Burst] = field(default_factory=list)

    def draw(self) -> Iterator[Burst]:
        """The sequences, each beginning with the key of a view."""
        rng = random.Random(self.seed)
        for number in range(self.count):
            keys = [rng.choice(VIEW_KEYS)]
            for _ in range(rng.randrange(1, 8)):
                kind = rng.random()
                keys += (
                    [rng.choice(KEYS)]
                    if kind < 0.8
                    else list(rng.choice(TEXTS))
                    if kind < 0.9
                    else [rng.choice(VIEW_KEYS)]
                )
            resize = rng.choice(SIZES) if rng.random() < 0.1 else None
            yield Burst(keys, resize, rng.random() < 0.1, number)

    async def run(self) -> None:
        """Type all sequences; raises AssertionError with the newest ones if the app ends without a key that quits."""
        remaining = self.draw()
        while self.done < self.count:
            place = self.done // PER_APP + self.seed
            cluster = CLUSTERS[place % len(CLUSTERS)]()
            app = cluster.app(others=[demo().source(), FakeCluster("node9").source()] if place % 2 else ())
            self.last = []
            async with app.run_test(size=SIZES[place // len(CLUSTERS) % len(SIZES)], notifications=True) as pilot:
                for _ in range(PER_APP):
                    sequence = next(remaining, None)
                    if sequence is None or not await self._type(pilot, app, cluster, sequence):
                        break

    async def _type(self, pilot: Pilot[None], app: ConsoleApp, cluster: FakeCluster, sequence: Burst) -> bool:
        """Type one sequence in one burst; False if it ended the app."""
        self.done += 1
        self.last.append(sequence)
        if sequence.resize is not None:
            await pilot.resize_terminal(*sequence.resize)
        if sequence.advances and cluster.names:
            cluster.advance(1)
            cluster.up()
        arrived = asyncio.Event()
        for key in sequence.keys:
            app.post_message(key_event(key))
        app.call_later(arrived.set)
        await until(
            pilot,
            lambda: (arrived.is_set() and app.typed.is_idle) or not app.is_running or app._exit,
            f"the effect of {sequence}",
        )
        assert app._exception is None, f"seed {self.seed}: {app._exception!r} after {self.last}"
        if not app.is_running or app._exit:
            assert QUITS & set(sequence.keys), f"seed {self.seed}: ended after {self.last}"
            self.quits += 1
            return False
        app.shutdown._interrupted_at = 0.0  # a Ctrl-C of another sequence is not the first of two
        return True


def key_event(key: str) -> events.Key:
    """The event of a key by its name, or of a character, as Textual's own pilot makes it."""
    if len(key) == 1:
        return events.Key(key if key.isalnum() else _character_to_key(key), key)
    try:
        return events.Key(key, unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(key, key))))
    except KeyError:
        return events.Key(key, None)
