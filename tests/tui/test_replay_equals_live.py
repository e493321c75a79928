"""The same records, live and played again, give every view the same to show: its models, and what it paints of them."""

from __future__ import annotations

import copy
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from clusters import busy_cluster, clock_cluster
from fake_cluster import LOADER, FakeCluster
from textual.pilot import Pilot
from waiting import frames, screen, settle

from gconsole.core.bus import Published
from gconsole.core.control import CaptureRequest
from gconsole.core.store import Store
from gconsole.records import Gap, Mark, decode
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, RecorderRun, named
from gconsole.session.replay import Replay
from gconsole.tui.app import ConsoleApp
from gconsole.tui.models.export_table import rows_as_json
from gconsole.tui.replay_app import ReplayApp
from gconsole.tui.views.query.view import QueryView
from gconsole.tui.views.registry import VIEWS
from gconsole.tui.widgets.sql_editor import SqlText

HANGS = Path(__file__).parents[1] / "hangs" / "recordings"
HISTORY_BYTES = 64 << 20
SIZE = (140, 44)
SQL = "SELECT node, count(*) AS ranks, max(step) AS step FROM ranks_now GROUP BY node ORDER BY node LIMIT 20"


@dataclass
class RecordStream:
    """Published records in their batches."""

    cluster: str
    names: list[str]
    batches: list[list[Published]]

    @property
    def records(self) -> list[Published]:
        return [record for batch in self.batches for record in batch]

    @property
    def end(self) -> int:
        return max(record.rx for record in self.records)


async def fake_stream(monkeypatch: pytest.MonkeyPatch, make: Callable[[], FakeCluster], *lost: str) -> RecordStream:
    """A fake cluster that runs for four minutes, with a captured hang."""
    batches: list[list[Published]] = []

    def publish(cluster: FakeCluster, *records: object) -> None:
        original_publish(cluster, *records)
        batches.append([copy.copy(record) for record in records])  # type: ignore[misc]

    original_publish = FakeCluster.publish
    monkeypatch.setattr(FakeCluster, "publish", publish)
    cluster = make()
    cluster.rank_frames = {3: LOADER}
    failed = {"node033", *lost}
    for minute in range(4):
        cluster.advance(60)
        cluster.up(*(name for name in cluster.names if name not in failed))
        if minute == 2:
            await cluster.capture(CaptureRequest(id="c1", samples=3, every_s=3.0))
            cluster.finding("rank_missing", "error", "rank 3 has not entered all_reduce", ["rank 3"])
    cluster.up(*(name for name in cluster.names if name not in failed))
    return RecordStream(cluster.cluster, list(cluster.names), batches)


async def lab_stream(monkeypatch: pytest.MonkeyPatch) -> RecordStream:
    """A hang recorded from real agents, one batch per tick."""
    lines = lzma.decompress((HANGS / "dataloader_worker.ndjson.xz").read_bytes()).splitlines()
    records = [decode(line) for line in lines]
    batches: list[list[Published]] = []
    for record in records:
        if not batches or batches[-1][-1].rx != record.rx:
            batches.append([])
        batches[-1].append(record)
    names = sorted({record.node for record in records if record.node})
    return RecordStream("lab", names, batches)


def a_few_nodes() -> FakeCluster:
    """Six nodes with records of every kind: clocks, a late rank, a stuck rank, a lost node."""
    cluster = FakeCluster(*(f"node{number}" for number in range(1, 7)), "node033")
    cluster.up(*cluster.names[:6])
    cluster.fail("node033", "auth", "the key was refused", "ssh-add")
    cluster.gpus(*cluster.names[:6], util=[96.0, 12.0])
    cluster.job("llama", 12, per_node=2, states={7: "uninterruptible"}, step=18_204)
    cluster.process("node2", 3, "python train.py")
    cluster.snapshots(*cluster.names[:6])
    cluster.clocks(*cluster.names[:6])
    cluster.snapshots(*cluster.names[:6])
    cluster.collectives("llama", 12, {7: 20.0, 5: 2.0}, per_node=2)
    cluster.finding("gpu_throttle", "warning", "node2 gpu1 hw_thermal_slowdown", ["node2"])
    cluster.publish(Mark(text="switched the fabric over"), Gap(node="node3", source="buffer", reason="slow", count=12))
    cluster.lose("node6", "the connection ended")
    return cluster


def only_in_full(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.full)


STREAMS = {
    "a_few_nodes": lambda patch: fake_stream(patch, a_few_nodes, "node6"),
    "a_bad_night": lambda patch: fake_stream(patch, busy_cluster, "node044"),
    "late_ranks": lambda patch: fake_stream(patch, clock_cluster),
    "a_hang_of_the_lab": lab_stream,
}


@pytest.fixture(params=["a_few_nodes", *map(only_in_full, ("a_hang_of_the_lab", "a_bad_night", "late_ranks"))])
async def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RecordStream:
    return await STREAMS[request.param](monkeypatch)


def live_app(stream: RecordStream) -> ConsoleApp:
    store = Store(HISTORY_BYTES)
    for batch in stream.batches:
        store.apply([copy.copy(record) for record in batch])
    control = FakeCluster()
    return ConsoleApp(store, control, cluster=stream.cluster, expected_nodes=stream.names, now=lambda: stream.end)


def replay_of(stream: RecordStream, folder: Path) -> Replay:
    session = named("night", folder)
    began = min(record.rx for record in stream.records)
    writer.write_session(
        session, stream.records, Meta(cluster=stream.cluster, parts=(RecorderRun(began=began, how="stopped"),))
    )
    return Replay(session, history_bytes=HISTORY_BYTES)


def jumped(replay: Replay) -> Replay:
    replay.jump(replay.end)
    return replay


def played(replay: Replay) -> Replay:
    """From the beginning to the end, a second of it at a time."""
    replay.jump(replay.begin)
    replay.is_playing = True
    while replay.is_playing:
        replay.advance(1.0)
    return replay


async def app_contents(app: ConsoleApp, size: tuple[int, int]) -> dict[str, object]:
    """All models of the views, and the tables and painted lines of each view."""
    contents: dict[str, object] = {}
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for row in VIEWS:
            await app.views.action_show(row.name)
            if isinstance(app.view, QueryView):
                await run_query(pilot)
            contents[f"{row.name}: painted"] = await stage_of(pilot)
        contents |= models(app)
    return contents


async def run_query(pilot: Pilot[None]) -> None:
    view = pilot.app.query_one(QueryView)
    view.query_one(SqlText).text = SQL
    await pilot.press("ctrl+j")
    await settle(pilot)


def models(app: ConsoleApp) -> dict[str, object]:
    frame = app.frame
    return {
        "now": frame.now,
        "header": msgspec.structs.replace(frame.header, replay_at=None),
        "fleet": frame.fleet,
        "nodes": frame.nodes,
        "gpus": {name: list(frame.gpus.of(name)) for name in frame.nodes},
        "processes": {key: frame.processes[key] for key in frame.processes},
        "processes on GPUs": {key: frame.gpu_processes[key] for key in frame.gpu_processes},
        "links of GPUs": {key: frame.gpu_links[key] for key in frame.gpu_links},
        "jobs": frame.jobs,
        "findings": frame.findings,
        "verdicts": [job_hang.judgement.verdict for job_hang in frame.hang],
        "stacks": [(job.fold, job.stacks, job.number, job.captures, job.incomplete, job.before, job.communication)
                   for job in frame.hang],
        "clocks": frame.clocks,
        "skew": frame.skew,
        "events": [frame.events.find(number) for number in range(frame.events.end)],
        "offers to save": [[(sheet.what, rows_as_json(sheet.kind,
            sheet.rows)) for sheet in view.export_tables()]
                           for view in app.views.opened.values()],
    }  # fmt: skip


async def stage_of(pilot: Pilot[None]) -> list[str]:
    """Painted lines of the view, once they no longer change."""
    region, lines, before = pilot.app.query_one("#stage").region, [""], None
    await settle(pilot)
    while lines != before:
        before, lines = lines, screen(pilot.app).splitlines()[region.y : region.bottom]
        await frames(pilot)
    return lines


async def test_every_view_at_the_end_of_a_replay_matches_the_live_view(stream: RecordStream, tmp_path: Path):
    live = await app_contents(live_app(stream), SIZE)
    replay = replay_of(stream, tmp_path)
    for go in (jumped, played):
        replayed = await app_contents(ReplayApp(go(replay)), (SIZE[0], SIZE[1] + 1))  # a line for the time line
        for name, value in live.items():
            assert replayed[name] == value, f"{go.__name__}: {name}"
        assert replayed.keys() == live.keys()
