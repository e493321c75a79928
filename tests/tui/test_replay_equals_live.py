"""The same records, live and played again, give every view the same to show: its models, and what it paints of them."""

from __future__ import annotations

import copy
import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from invented import LOADER, SECOND, Cluster, busy_night, compared
from textual.pilot import Pilot
from waiting import settle

from gconsole.hub import CaptureOrder, Published
from gconsole.recordfile import read
from gconsole.session import making
from gconsole.session.layout import Meta, Part, named
from gconsole.session.replay import Replay
from gconsole.store import Store
from gconsole.tui.app import ConsoleApp
from gconsole.tui.models import copying
from gconsole.tui.replay_app import ReplayApp
from gconsole.tui.views.query import Query
from gconsole.tui.views.table import VIEWS
from gconsole.tui.widgets.sql_editor import SqlText

HANGS = Path(__file__).parents[1] / "hangs" / "recordings"
HISTORY_BYTES = 64 << 20
SIZE = (140, 44)
SQL = "SELECT node, count(*) AS ranks, max(step) AS step FROM ranks_now GROUP BY node ORDER BY node LIMIT 20"


@dataclass
class Tape:
    """What was said, in the batches in which it was, and by when it was over."""

    cluster: str
    names: list[str]
    batches: list[list[Published]]

    @property
    def records(self) -> list[Published]:
        return [record for batch in self.batches for record in batch]

    @property
    def end(self) -> int:
        return max(record.rx for record in self.records)


async def invented(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Cluster]) -> Tape:
    """An invented cluster that goes on for six minutes, with a hang that is captured."""
    batches: list[list[Published]] = []

    def say(cluster: Cluster, *records: object) -> None:
        as_before(cluster, *records)
        batches.append([copy.copy(record) for record in records])  # type: ignore[misc]

    as_before = Cluster.say
    monkeypatch.setattr(Cluster, "say", say)
    cluster = make()
    cluster.standing = {3: LOADER}
    failed = {"node033", "node044"}
    for minute in range(6):
        cluster.later(60)
        cluster.up(*(name for name in cluster.names if name not in failed))
        if minute == 3:
            await cluster.capture(CaptureOrder(id="c1", samples=3, every_s=3.0))
            cluster.finding("rank_missing", "error", "rank 3 has not entered all_reduce", ["rank 3"])
    cluster.up(*(name for name in cluster.names if name not in failed))
    return Tape(cluster.cluster, list(cluster.names), batches)


async def recorded(monkeypatch: pytest.MonkeyPatch) -> Tape:
    """A hang of the lab, as real agents told it, a batch a tick."""
    file = lzma.decompress((HANGS / "dataloader_worker.ndjson.xz").read_bytes())
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hang.ndjson"
        path.write_bytes(file)
        records = list(read(path))
    batches: list[list[Published]] = []
    for record in records:
        if not batches or batches[-1][-1].rx != record.rx:
            batches.append([])
        batches[-1].append(record)
    names = sorted({record.node for record in records if record.node})
    return Tape("lab", names, batches)


TAPES = {
    "a_bad_night": lambda patch: invented(patch, busy_night),
    "late_ranks": lambda patch: invented(patch, compared),
    "a_hang_of_the_lab": recorded,
}


@pytest.fixture(params=TAPES)
async def tape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tape:
    return await TAPES[request.param](monkeypatch)


def live_app(tape: Tape) -> ConsoleApp:
    store = Store(HISTORY_BYTES)
    for batch in tape.batches:
        store.apply([copy.copy(record) for record in batch])
    control = Cluster()
    return ConsoleApp(store, control, cluster=tape.cluster, expected_nodes=tape.names, now=lambda: tape.end)


def replay_of(tape: Tape, folder: Path) -> Replay:
    session = named("night", folder)
    began = min(record.rx for record in tape.records)
    making.make(session, tape.records, Meta(cluster=tape.cluster, parts=(Part(began=began, how="stopped"),)))
    return Replay(session, history_bytes=HISTORY_BYTES)


def jumped(replay: Replay) -> Replay:
    replay.jump(replay.end)
    return replay


def played(replay: Replay) -> Replay:
    """From the beginning to the end, a second of it at a time."""
    replay.is_playing = True
    while replay.is_playing:
        replay.advance(1.0)
    return replay


async def told(app: ConsoleApp, size: tuple[int, int]) -> dict[str, object]:
    """Everything that the views are made of, and of each view its tables and what it paints."""
    found: dict[str, object] = {}
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for row in VIEWS:
            await app.action_show(row.name)
            if isinstance(app.view, Query):
                await ask(pilot)
            await settle(pilot)
            found |= {f"{row.name}: {name}": value for name, value in shown(app).items()}
        found |= models(app)
    return found


async def ask(pilot: Pilot[None]) -> None:
    view = pilot.app.query_one(Query)
    view.query_one(SqlText).text = SQL
    await pilot.press("ctrl+j")
    await settle(pilot)


def models(app: ConsoleApp) -> dict[str, object]:
    frame = app.frame
    return {
        "now": frame.now,
        "header": replace(frame.header, replay_at=None),
        "fleet": frame.fleet,
        "nodes": frame.nodes,
        "gpus": {name: list(frame.gpus.of(name)) for name in frame.nodes},
        "processes": {key: frame.processes[key] for key in frame.processes},
        "processes on GPUs": {key: frame.gpu_processes[key] for key in frame.gpu_processes},
        "links of GPUs": {key: frame.gpu_links[key] for key in frame.gpu_links},
        "jobs": frame.jobs,
        "findings": frame.findings,
        "hang": frame.hang,
        "clocks": frame.time.clocks,
        "skew": frame.time.skew,
        "events": [frame.events.find(number) for number in range(frame.events.end)],
        "offers to save": [[(sheet.what, copying.as_json(sheet.kind, sheet.rows)) for sheet in view.sheets()]
                           for view in app.opened_views.values()],
    }  # fmt: skip


def shown(app: ConsoleApp) -> dict[str, object]:
    """What a view paints, line by line, and what it would copy."""
    region = app.query_one("#stage").region
    strips = app.screen._compositor.render_strips()[region.y : region.bottom]
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips]
    return {"painted": lines}


@pytest.mark.parametrize("go", [jumped, played])
async def test_at_the_end_every_view_has_what_the_live_one_has(tape: Tape, go: Callable[[Replay], Replay], tmp_path: Path):
    live = await told(live_app(tape), SIZE)
    again = await told(ReplayApp(go(replay_of(tape, tmp_path))), (SIZE[0], SIZE[1] + 1))  # a line for the time line
    for name, value in live.items():
        assert again[name] == value, name
    assert again.keys() == live.keys()
    assert SECOND
