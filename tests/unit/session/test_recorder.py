"""Recorder of a console: concurrent sessions, initial records, acknowledgements, crash recovery."""

import asyncio
import gc
import time
from collections import deque
from contextlib import closing

import msgspec
import pytest
from session_files import SECOND, gpus

from gconsole.core.bus import Hub
from gconsole.core.control import Selection
from gconsole.core.store import Store
from gconsole.records import ConsoleRecord, Gap, Gpu, GpuInfo, Log, Mark, Node, NodeState
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import SessionError, named
from gconsole.session.format.manifest import check_part, read_manifest
from gconsole.session.manage.retention import DELETED_LOG, Limits
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource
from gconsole.session.record import recording, recovery
from gconsole.session.record.recorder import Recorder
from gconsole.session.record.selection import select
from gconsole.session.stored_records import current_records
from gconsole.text import logs

NONE = Limits()


class RecorderSetup:
    """A hub, a store and a recorder in one folder."""

    def __init__(self, folder, console_id=None, limits=NONE, **options):
        self.folder = folder
        self.hub, self.store = Hub(console_id), Store()
        self.hub.subscribe(self.store.apply)
        self.recorder = Recorder(self.hub, folder, limits, lambda: current_records(self.store), **options)

    def records(self, name):
        return list(reader.records(named(name, self.folder).path))

    async def safe(self, agent, seq):
        """Wait until that record may be acknowledged."""
        deadline = time.monotonic() + 30
        while self.hub.kept(agent, seq) < seq:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


def a_node(name="node1", agent="agent1", seq=1, **changes):
    return Node(node=name, agent=agent, seq=seq, hostname=name, boot_id="b", kernel="k", arch="x", python="3.11", uid=0,
                pid=1, sample_interval_ms=1000, **changes)  # fmt: skip


@pytest.mark.slow
async def test_records_are_acknowledged_once_every_recording_has_them_on_disk(tmp_path):
    setup = RecorderSetup(tmp_path)
    assert setup.hub.kept("agent1", 7) == 7, "without a recording, reception suffices"
    await setup.recorder.start("one")
    await setup.recorder.start("two", select(kinds=("gpu",)))
    setup.hub.publish(gpus(3))
    assert setup.hub.kept("agent1", 3) == 0
    await setup.safe("agent1", 3)
    assert [record.seq for record in setup.records("one") if record.agent == "agent1"] == [1, 2, 3]
    assert [record.seq for record in setup.records("two") if record.agent == "agent1"] == [1, 2, 3]
    await setup.recorder.close()


async def test_records_a_recording_does_not_select_are_still_acknowledged(tmp_path):
    setup = RecorderSetup(tmp_path)
    await setup.recorder.start("one", Selection(kinds=("stack",)))
    setup.hub.publish(gpus(3))
    await setup.safe("agent1", 3)
    await setup.recorder.close()
    assert not [record for record in setup.records("one") if isinstance(record, Gpu)]


async def test_recording_started_late_begins_with_the_current_state(tmp_path):
    setup = RecorderSetup(tmp_path)
    setup.hub.publish_own(ConsoleRecord(cluster="pod", version="1"), NodeState(node="node1", state="ok"))
    card = GpuInfo(node="node1", agent="agent1", seq=2, index=0, uuid="GPU-1")
    setup.hub.publish([a_node(), card, *gpus(1, first=3)])
    setup.hub.publish([a_node("node2", "agent2")])
    await setup.recorder.start("late")
    setup.hub.publish(gpus(1, first=4))
    await setup.recorder.close()
    store = Store()
    store.apply(setup.records("late"))
    assert set(store.nodes) == {"node1", "node2"}
    assert store.gpus["node1", "GPU-1"].info is not None
    assert store.console.cluster == "pod"


async def test_initial_state_larger_than_the_queue_limit_is_recorded_in_full(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MAX_WAITING_RECORDS", 10)
    setup = RecorderSetup(tmp_path)
    setup.hub.publish([a_node(f"node{i}", f"agent{i}") for i in range(50)])
    await setup.recorder.start("late")
    await setup.recorder.close()
    assert sum(isinstance(record, Node) for record in setup.records("late")) == 50


async def test_marks_and_the_consoles_own_log_are_recorded(tmp_path):
    setup = RecorderSetup(tmp_path)
    await setup.recorder.start("one")
    setup.hub.publish_own(Mark(text="loss went up here"))
    await setup.recorder.close()
    assert [record.text for record in setup.records("one") if isinstance(record, Mark)] == ["loss went up here"]
    assert [record.text for record in setup.records("one") if isinstance(record, Log)][-1] == "recording one stopped"


async def test_recording_under_an_active_or_closed_session_name_is_rejected(tmp_path):
    setup = RecorderSetup(tmp_path)
    await setup.recorder.start("one")
    with pytest.raises(SessionError, match="already"):
        await setup.recorder.start("one")
    with pytest.raises(SessionError, match="being written"):
        await RecorderSetup(tmp_path).recorder.start("one")
    await setup.recorder.close()
    with pytest.raises(SessionError, match="exists already"):
        await setup.recorder.start("one")
    with pytest.raises(SessionError, match="not being recorded"):
        await setup.recorder.stop("one")


async def crashed_recording(folder):
    """Record a node and three GPU records; the session is left as after a crash of the console."""
    setup = RecorderSetup(folder, "console1")
    await setup.recorder.start("night")
    setup.hub.publish([a_node(), *gpus(3, first=2)])
    await setup.safe("agent1", 4)
    session = named("night", folder)
    left = session.meta_path.read_bytes()
    await setup.recorder.close()
    session.meta_path.write_bytes(left)  # metadata as during the recording
    return session


@pytest.mark.slow
async def test_crashed_session_resumes_with_the_same_console_id_and_agents(tmp_path):
    session = await crashed_recording(tmp_path)
    left = recovery.resume_crashed(session, str)
    assert left.console_id == "console1"
    assert left.agents == {"node1": ("agent1", 4)}
    assert left.agent_of("node2") is None
    store = Store()
    recovery.refold(session, store.apply)
    assert store.nodes["node1"].node.hostname == "node1"
    setup = RecorderSetup(tmp_path, left.console_id)
    assert await setup.recorder.start("night")
    setup.hub.publish(gpus(2, first=5))
    await setup.recorder.close()
    records = setup.records("night")
    assert [record.seq for record in records if record.agent == "agent1"] == [1, 2, 3, 4, 5, 6]
    assert not [record for record in records if isinstance(record, Gap)], "the agent lingered, so no record is missing"
    assert [part.how for part in session.read().parts] == ["crashed", "stopped"]


class FakeBridge:
    """The fleet as seen by a resumed recording; lingering agents deliver records 5 and 6 after the crash."""

    def __init__(self, setup, *, lingering=True):
        self.setup, self.lingering = setup, lingering
        setup.recorder.bridge = self

    def may_have_agents(self, left):
        return self.lingering and left.agent_of("node1") is not None

    async def adopt_agents(self, left):
        self.setup.hub.publish(gpus(1, agent="agent2", first=9))  # last record of the agent that is replaced
        self.setup.hub.adopt_identity(left.console_id, left.seq)


@pytest.mark.slow
async def test_resuming_a_crashed_session_adopts_the_console_id_of_its_lingering_agents(tmp_path):
    await crashed_recording(tmp_path)
    setup = RecorderSetup(tmp_path, "console2")
    setup.hub.publish_own(ConsoleRecord(cluster="pod", version="1"))
    setup.hub.publish([a_node(agent="agent2", rx=90 * SECOND), *gpus(3, agent="agent2", first=2)])
    FakeBridge(setup)
    assert await setup.recorder.start("night")
    kept = gpus(2, first=5)
    for one in kept:
        one.rx = 100 * SECOND
    setup.hub.publish(kept)
    await setup.recorder.close()
    records = setup.records("night")
    assert [record.seq for record in records if record.agent == "agent1"] == [1, 2, 3, 4, 5, 6]
    assert not [record for record in records if isinstance(record, Gap)], (
        "records of its own agent are not from lingering agents"
    )
    meta = named("night", tmp_path).read()
    assert [(part.console, part.was) for part in meta.parts] == [("console1", ""), ("console1", "console2")]
    assert recovery.last_agents(meta)["node1"][0] == "agent1"
    own = [record.seq for record in records if record.agent == "console1"]
    assert own == sorted(set(own)), "its own records continue after the existing ones"


@pytest.mark.slow
async def test_resuming_with_lingering_agents_is_rejected_while_another_recording_runs(tmp_path):
    await crashed_recording(tmp_path)
    setup = RecorderSetup(tmp_path, "console2")
    FakeBridge(setup)
    await setup.recorder.start("other")
    with pytest.raises(SessionError, match="deliver them only to a single recording; stop first: other"):
        await setup.recorder.start("night")
    await setup.recorder.stop("other")
    assert await setup.recorder.start("night")
    await setup.recorder.close()


@pytest.mark.slow
async def test_resuming_without_lingering_agents_keeps_the_console_id_and_records_a_gap(tmp_path):
    await crashed_recording(tmp_path)
    setup = RecorderSetup(tmp_path, "console2")
    FakeBridge(setup, lingering=False)
    assert await setup.recorder.start("night")
    setup.hub.publish([a_node(agent="agent2", rx=64 * SECOND)])
    await setup.recorder.close()
    (gap,) = [record for record in setup.records("night") if isinstance(record, Gap)]
    assert (gap.node, gap.count) == ("node1", 60)
    assert named("night", tmp_path).read().parts[-1].console == "console2"


@pytest.mark.slow
async def test_records_a_lingering_agent_dropped_are_recorded_as_a_gap(tmp_path):
    await crashed_recording(tmp_path)
    setup = RecorderSetup(tmp_path, "console1")
    await setup.recorder.start("night")
    setup.hub.publish(gpus(2, first=8))
    await setup.recorder.close()
    (gap,) = [record for record in setup.records("night") if isinstance(record, Gap)]
    assert (gap.node, gap.count, gap.first_seq, gap.last_seq) == ("node1", 3, 5, 7)


@pytest.mark.slow
async def test_ticks_missed_after_an_agent_ended_are_recorded_as_a_gap(tmp_path):
    await crashed_recording(tmp_path)
    setup = RecorderSetup(tmp_path, "console2")
    await setup.recorder.start("night")
    setup.hub.publish_own(NodeState(node="node1", state="expected"))  # record of the console, not of the node
    setup.hub.publish([a_node(agent="agent9", rx=(4 + 60) * SECOND)])
    await setup.recorder.close()
    (gap,) = [record for record in setup.records("night") if isinstance(record, Gap)]
    assert (gap.node, gap.count, gap.first_seq) == ("node1", 60, 5)
    assert "1 min" in gap.reason


async def test_anonymous_recording_contains_no_host_or_user_name(tmp_path):
    setup = RecorderSetup(tmp_path, hosts=("node1", "10.9.8.7"))
    await setup.recorder.start("shared", select(nodes=("node1",), anonymous=True))
    setup.hub.publish([a_node(user="alice"), *gpus(1, first=2)])
    setup.hub.publish_own(Log(node="node1", source="console", text="node1 (10.9.8.7): alice may not log in"))
    setup.hub.publish_own(Log(node="node2", source="console", text="not chosen"))
    await setup.recorder.close()
    session = named("shared", tmp_path)
    written = b"".join(record.text.encode() for record in setup.records("shared") if isinstance(record, Log))
    everything = session.meta_path.read_bytes() + written + repr(setup.records("shared")).encode()
    for name in (b"node1", b"alice", b"10.9.8.7", b"not chosen"):
        assert name not in everything
    assert any(isinstance(one, Gpu) for one in setup.records("shared")), "the selected node is present"


@pytest.mark.slow
async def test_internal_error_ends_the_recording_with_a_reason_but_not_the_console(tmp_path, monkeypatch):
    setup = RecorderSetup(tmp_path)
    await setup.recorder.start("one")

    def broken(*args):
        raise RuntimeError("bug")

    monkeypatch.setattr(writer.zstd_frames, "pack_raw", broken)
    monkeypatch.setattr(logs, "_path", tmp_path / "own.log")
    setup.hub.publish(gpus(1))
    deadline = time.monotonic() + 30
    while not any(now.trouble for now in setup.recorder.active()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert "internal error" in setup.recorder.active()[0].trouble
    assert str(logs.path()) in setup.recorder.active()[0].trouble
    setup.hub.publish(gpus(1, first=2))
    assert setup.hub.kept("agent1", 2) == 2, "no agent awaits its acknowledgement"
    assert not named("one", tmp_path).is_being_written()


async def test_retention_runs_while_recording_and_its_deletions_are_recorded(tmp_path):
    setup = RecorderSetup(tmp_path, limits=Limits(max_bytes=1), retention_s=0.0)
    await setup.recorder.start("new")
    old = writer.write_session(named("old", tmp_path), gpus(3))
    deadline = time.monotonic() + 30
    seq = 0
    while len(warnings_in(setup.store)) < 2:
        assert time.monotonic() < deadline
        seq += 1
        setup.hub.publish(gpus(1, first=seq))
        await asyncio.sleep(0.01)
    for _ in range(20):
        setup.hub.publish(gpus(1, first=(seq := seq + 1)))
        await asyncio.sleep(0.01)
    await setup.recorder.close()

    left, gone = sorted(warnings_in(setup.store), key=lambda text: text.startswith("session old"))
    assert not named("old", tmp_path).path.exists()
    assert "old was deleted: all sessions together take" in gone
    assert "no closed session is left to delete" in left, "reported once, however often it is evaluated"
    logs = [record.text for record in setup.records("new") if isinstance(record, Log) and record.severity == "warning"]
    assert sorted(logs) == sorted([gone, left])
    (line,) = (tmp_path / DELETED_LOG).read_bytes().splitlines()
    assert msgspec.json.decode(line)["id"] == old.id


def warnings_in(store):
    events = [record for _, record in store.events]
    return [record.text for record in events if isinstance(record, Log) and record.severity == "warning"]


async def test_recording_that_selects_clock_records_requests_continuous_probing(tmp_path):
    wanted = []
    setup = RecorderSetup(tmp_path, request_clock_probes=lambda who, wants: wanted.append((who, wants)))
    await setup.recorder.start("figures", select(kinds=("gpu",)))
    assert wanted == []
    await setup.recorder.start("all")
    assert wanted == [("recording all", True)]
    await setup.recorder.stop("all")
    assert wanted[-1] == ("recording all", False)
    await setup.recorder.close()


async def test_recording_names_what_it_selects_until_it_stops(tmp_path):
    wanted = []
    setup = RecorderSetup(tmp_path, want=lambda who, selection: wanted.append((who, selection)))
    selection = select(kinds=("gpu",), nodes=("node1",))
    await setup.recorder.start("figures", selection)
    assert wanted == [("recording figures", selection)]
    await setup.recorder.stop("figures")
    assert wanted[1:] == [("recording figures", None)]
    await setup.recorder.close()


@pytest.mark.slow
async def test_recorder_frees_the_state_of_replaced_agents(tmp_path):
    setup = RecorderSetup(tmp_path)
    await setup.recorder.start("one")

    async def held_after(agents: range) -> int:
        for number in agents:
            for seq in range(1, 9):
                setup.hub.publish(gpus(1, agent=f"agent{number}", first=seq))
        await setup.safe(f"agent{agents[-1]}", 8)
        gc.collect()
        return sum(isinstance(get_object, deque) for get_object in gc.get_objects())

    held = await held_after(range(2))
    assert await held_after(range(2, 200)) <= held  # fewer if garbage of earlier tests is collected meanwhile
    await setup.recorder.close()
    assert setup.hub.kept("agent199", 8) == 8


async def test_session_lists_its_console_and_the_last_agent_of_each_node(tmp_path):
    setup = RecorderSetup(tmp_path, "console1")
    await setup.recorder.start("one")
    for number in range(50):
        one = a_node(agent=f"agent{number}")
        one.rx = number * SECOND
        setup.hub.publish([one])
        setup.hub.publish_own(NodeState(node="node1", state="ok"))
    setup.hub.publish([a_node("node2", "other")])
    await setup.recorder.close()
    session = named("one", tmp_path)
    assert set(session.read().agents) == {"console1", "agent49", "other"}
    session.meta_path.unlink()
    recovery.recover(session)
    assert session.read().agents["agent49"].seq == 1


async def test_sealed_segments_are_compacted_while_recording_also_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "COMPACT_BYTES", 1)
    monkeypatch.setattr(recording, "COMPACT_FREE_BYTES", 0)
    setup = RecorderSetup(tmp_path, segment_bytes=2_000)
    await setup.recorder.start("night")
    session = named("night", tmp_path)
    is_killed, seq = False, 0
    deadline = time.monotonic() + 60
    while not (compacted := read_manifest(session).segments) or not is_killed:
        assert time.monotonic() < deadline
        seq += 50
        setup.hub.publish(gpus(50, first=seq - 49))
        await setup.safe("agent1", seq)
        child = setup.recorder._running["night"]._compaction
        if child is not None and not is_killed:
            child.kill()
            is_killed = True
    await setup.recorder.close()

    assert len(compacted) < len(session.segments())
    with RecordedSource(session.path) as source, closing(Database(source)) as database:
        rows = database.query("SELECT count(*), count(DISTINCT seq) FROM gpu").rows
    assert rows == [(seq, seq)]
    assert not list(session.parquet_folder.rglob("*.draft"))
    assert not [part for part in read_manifest(session).parts if check_part(session, part)]
