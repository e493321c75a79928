"""The black box: bounds of its ring, snapshots, keeping the last minutes, several consoles, and what is refused."""

import asyncio
import os
import random
import stat
import time
from collections import Counter
from contextlib import suppress

import pytest

from gconsole.config import ConsoleConfig
from gconsole.core.bus import Hub
from gconsole.records import ConsoleRecord, Finding, GpuInfo, Log, Mark, Node, NodeState, PgStatus, Rank
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import Meta, RecorderRun, Session, SessionError
from gconsole.session.manage import black_boxes
from gconsole.session.manage.black_boxes import choose, delete_stale, keep_last, list_black_boxes
from gconsole.session.manage.retention import Limits
from gconsole.session.record import recovery, ring
from gconsole.session.record.black_box import BlackBox
from gconsole.session.record.recorder import Recorder
from gconsole.session.record.ring import RingLimits, RingWriter, SealedSegment, is_urgent, segments_to_delete
from gconsole.session.replay import Replay

SECOND = 1_000_000_000
NODE = Node(node="node1", hostname="h", boot_id="b", kernel="k", arch="a", python="3", uid=1, pid=1, user="u",
            sample_interval_ms=1000)  # fmt: skip
DEADLINE_S = 30.0
MIB = 1 << 20
DEFAULT = RingLimits(64 * MIB, 900.0)


@pytest.mark.parametrize(
    ("segments", "open_bytes", "now_s", "deleted"),
    [
        ([(10, 60), (10, 120)], 10, 130, 0),
        ([(40, 60), (40, 120)], 20, 130, 0),  # exactly at the limit of 100 bytes
        ([(40, 60), (40, 120)], 21, 130, 1),
        ([(40, 60), (40, 120)], 90, 130, 2),
        ([(10, 60), (10, 120)], 10, 959, 0),
        ([(10, 60), (10, 120)], 10, 960, 1),  # the later ones cover 900 s by themselves
        ([(10, 60), (10, 120)], 10, 9999, 2),
        ([], 500, 9999, 0),  # the segment that is written is never deleted
    ],
)
def test_oldest_segments_beyond_bytes_or_seconds_are_deleted(segments, open_bytes, now_s, deleted):
    sealed = [SealedSegment(number, size, ended) for number, (size, ended) in enumerate(segments, 1)]
    assert segments_to_delete(sealed, open_bytes, RingLimits(100, 900.0), now_s) == deleted


@pytest.mark.parametrize(
    ("record", "urgent"),
    [
        (PgStatus(capture="a", source="ras", job="j", rank=1), True),
        (Finding(id="hung", severity="error", confidence="certain", text="x", culprits=(), first_seen=1), True),
        (Finding(id="slow", severity="warning", confidence="certain", text="x", culprits=(), first_seen=1), False),
        (NodeState(node="a", state="lost"), True),
        (NodeState(node="a", state="ok"), False),
        (Rank(node="a", pid=1, start_ticks=1, job="j", rank=1, source="environ", status="exited"), True),
        (Mark(text="now"), True),
        (Log(source="console", severity="info", text="x"), False),
    ],
)
def test_evidence_is_written_at_once(record, urgent):
    assert is_urgent(record) is urgent


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class Box:
    """The ring of one console, fed by hand: one GPU whose index is the number of the second."""

    def __init__(self, folder, name="box", target="/hosts.toml", limits=DEFAULT, began=SECOND):
        self.session, self.seq, self.clock, self.messages = Session(folder / name), 0, Clock(), []
        meta = Meta(cluster="pod", target=target, parts=(RecorderRun(began=began),))
        meta = writer.create_session(self.session, meta)
        self.agent = f"agent of {name}"
        self.record(began)
        lock = self.session.take_lock()
        self.ring = RingWriter(self.session, meta, lock, self.messages.append, limits, self.clock)

    def record(self, at_ns, index=0, **fields):
        self.seq += 1
        made = GpuInfo(node="node1", agent=self.agent, seq=self.seq, t=at_ns, mono=at_ns, rx=at_ns, uuid="GPU-1",
                       index=index, **fields)  # fmt: skip
        self.state = [made]
        return made

    def publish(self, *records):
        self.ring.offer(1, records)

    def snapshot(self):
        """Begin a segment with the present state."""
        self.ring.begin_segment()
        self.ring.complete_segment(list(self.state))

    def until(self, reached):
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, (self.ring.status(), self.messages)
            time.sleep(0.005)

    def written(self, number):
        """Wait until that many records were written in all, deleted ones included."""
        self.until(lambda: self.ring.meta.records >= number)

    def kill(self):
        """End as a crash does: the lock is released and nothing else is written."""
        self.ring._close = lambda: None
        self.ring.stop()

    def size(self):
        total = 0
        for path in self.session.segments():
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total


@pytest.fixture
def quick(monkeypatch):
    """Nothing is gathered for long."""
    monkeypatch.setattr(ring, "GATHER_S", 0.01)
    monkeypatch.setattr(ring, "FLUSH_CHECK_S", 0.01)
    monkeypatch.setattr(ring, "RING_GATHER_S", 0.0)


@pytest.fixture
def at_time(monkeypatch):
    """Sets the time of snapshots, ns."""
    moment = [SECOND]
    monkeypatch.setattr(ring, "now", lambda: moment[0])
    return lambda ns: moment.__setitem__(0, ns)


def minutes(box, at_time, begin, end, noise=0):
    """Publish a record a minute; every minute fills a segment."""
    for minute in range(begin, end):
        at_ns = minute * 60 * SECOND
        at_time(at_ns)
        box.snapshot()
        total = box.ring.meta.records + len(box.state)
        box.publish(box.record(at_ns + SECOND, index=minute, name=os.urandom(noise).hex()))
        box.written(total + 1)
        box.clock.now_s += 60.0
    box.until(lambda: not box.ring._busy)


def test_flood_stays_within_the_bytes_and_each_segment_begins_with_the_state(tmp_path, quick):
    limits = RingLimits(MIB, 900.0)
    box = Box(tmp_path, limits=limits)
    box.snapshot()
    largest, chance = 0, random.Random(1)
    for number in range(200):
        box.publish(*(box.record(number * SECOND, name=chance.randbytes(2000).hex()) for _ in range(20)))
        if box.ring.wants_snapshot:
            box.snapshot()
        box.written(20 * number)
        largest = max(largest, box.size())
    box.ring.stop()
    largest = max(largest, box.size())
    assert largest <= limits.bytes
    assert largest > limits.bytes / 2
    for path in box.session.segments()[1:]:
        first = next(iter(reader.scan_session(path, reader.ignore_damage)))
        assert first.label.snapshot > 0
    assert not box.messages


def test_snapshot_that_is_taken_while_records_arrive_holds_no_record_twice_and_no_newer_state_is_lost(
    tmp_path, quick, at_time
):
    box = Box(tmp_path / "boxes")
    box.snapshot()
    box.publish(box.record(60 * SECOND, index=1))
    box.written(2)
    other = GpuInfo(node="node1", agent="x", seq=1, rx=SECOND, uuid="GPU-2", index=9)
    at_time(120 * SECOND)
    box.ring.begin_segment()
    box.publish(box.record(121 * SECOND, index=2))
    newer = [other, *box.state]
    box.publish(box.record(122 * SECOND, index=3))
    box.ring.complete_segment(newer)
    box.written(5)
    keep_last(list_black_boxes(tmp_path / "boxes"), 2.0, "incident", tmp_path / "sessions")
    box.ring.stop()
    assert [record.index for record in reader.records(tmp_path / "sessions" / "incident")] == [9, 2, 3]


def test_burst_larger_than_the_ring_is_dropped_and_followed_by_a_snapshot(tmp_path, quick):
    box = Box(tmp_path, limits=RingLimits(MIB, 900.0))
    box.snapshot()
    box.publish(*(box.record(SECOND, name=os.urandom(8000).hex()) for _ in range(400)))
    box.until(lambda: box.messages)
    assert "black_box_bytes" in box.messages[0].text
    assert box.size() <= MIB
    box.publish(box.record(2 * SECOND, index=7))
    box.until(lambda: box.ring.wants_snapshot)
    box.snapshot()
    box.publish(box.record(3 * SECOND, index=8))
    box.until(lambda: box.ring.meta.records >= 3)
    box.ring.stop()
    assert len(box.messages) == 1


def test_segments_older_than_the_length_are_deleted(tmp_path, quick, at_time):
    box = Box(tmp_path, limits=RingLimits(64 * MIB, 300.0))
    minutes(box, at_time, 1, 21)
    box.ring.stop()
    kept = list(reader.records(box.session.path))
    assert min(record.index for record in kept) in (13, 14, 15)
    assert len(box.session.segments()) <= 7


def test_ring_of_a_large_fleet_begins_fewer_segments(tmp_path, quick):
    """A snapshot takes as long as minutes of records there: each segment is worth one, or lasts a quarter."""
    limits = RingLimits(64 * MIB, 960.0)
    small, large = (segments_of_16_minutes(Box(tmp_path / str(size), limits=limits), size) for size in (1, 600))
    assert (small, large) == (16, 4)


def segments_of_16_minutes(box, size):
    """How many segments begin, with a record a minute and a state of `size` records of 2 kB each when compressed."""
    state = [box.record(0, index=number, name=os.urandom(2000).hex()) for number in range(size)]
    box.ring.begin_segment()
    box.ring.complete_segment(list(state))
    begun, written = 0, size
    for minute in range(1, 17):
        box.written(written)
        box.clock.now_s += 60.5
        box.publish(box.record(minute * 60 * SECOND, index=minute))
        written += 1
        box.written(written)
        box.until(lambda: not box.ring._busy)
        if box.ring.wants_snapshot:
            begun, written = begun + 1, written + size
            box.ring.begin_segment()
            box.ring.complete_segment(list(state))
    box.written(written)
    box.ring.stop()
    return begun


def test_kept_minutes_begin_with_the_state_and_hold_every_record_once(tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes")
    minutes(box, at_time, 1, 11)
    kept = keep_last(list_black_boxes(tmp_path / "boxes"), 180.0, "incident", tmp_path / "sessions")
    box.ring.stop()
    session = Session(tmp_path / "sessions" / "incident")
    records = list(reader.records(session.path))
    assert [record.index for record in records] == [6, 7, 8, 9, 10], "the state of minute 7, then its records"
    assert (kept.began, kept.ended) == (7 * 60 * SECOND, 10 * 60 * SECOND + SECOND)
    assert kept.records == 5
    assert kept.covered_ns >= 180 * SECOND
    meta = session.read()
    assert (meta.state, meta.records, meta.counts, meta.target) == ("closed", 5, {"gpu_info": 5}, "")
    assert meta.span == (kept.began, kept.ended)
    assert recovery.verify(session).is_sound
    player = Replay(session)
    assert (player.begin, player.end) == (kept.began, kept.ended)
    assert player.store.gpus["node1", "GPU-1"].info.index == 6
    player.jump(player.end)
    assert player.store.gpus["node1", "GPU-1"].info.index == 10


def test_longer_than_the_ring_keeps_what_there_is(tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes", limits=RingLimits(64 * MIB, 300.0))
    minutes(box, at_time, 1, 4)
    young = keep_last(list_black_boxes(tmp_path / "boxes"), 900.0, "young", tmp_path / "sessions")
    assert (young.covered_ns, young.is_limited) == (121 * SECOND, False)
    minutes(box, at_time, 4, 15)
    old = keep_last(list_black_boxes(tmp_path / "boxes"), 900.0, "old", tmp_path / "sessions")
    box.ring.stop()
    assert 240 * SECOND <= old.covered_ns < 900 * SECOND
    assert old.is_limited


def test_console_that_was_killed_and_its_successor_are_kept_together(tmp_path, quick, at_time):
    first = Box(tmp_path / "boxes", "first")
    minutes(first, at_time, 1, 6)
    first.kill()
    second = Box(tmp_path / "boxes", "second", began=400 * SECOND)
    minutes(second, at_time, 7, 10)
    boxes = list_black_boxes(tmp_path / "boxes")
    assert [box.is_running for box in boxes] == [False, True]
    keep_last(boxes, 900.0, "incident", tmp_path / "sessions")
    second.ring.stop()
    session = Session(tmp_path / "sessions" / "incident")
    assert [record.index for record in reader.records(session.path)] == [0, 1, 2, 3, 4, 5, 0, 7, 8, 9]
    assert [run.how for run in session.read().parts] == ["crashed", "stopped"]
    with pytest.raises(SessionError, match="exists already"):
        recovery.check_resumable(session)


def test_of_two_consoles_at_a_time_the_one_that_covers_more_is_kept(tmp_path, quick, at_time):
    long, short = Box(tmp_path / "boxes", "long"), Box(tmp_path / "boxes", "short", began=240 * SECOND)
    minutes(long, at_time, 1, 5)
    minutes(short, at_time, 5, 8)
    minutes(long, at_time, 5, 8)
    keep_last(list_black_boxes(tmp_path / "boxes"), 900.0, "incident", tmp_path / "sessions")
    long.ring.stop()
    short.ring.stop()
    records = list(reader.records(tmp_path / "sessions" / "incident"))
    assert {record.agent for record in records} == {"agent of long"}
    assert [record.index for record in records] == list(range(8))


def test_torn_end_and_damaged_frames_are_left_out(tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes")
    minutes(box, at_time, 1, 6)
    box.kill()
    *_, before, last = box.session.segments()
    last.write_bytes(last.read_bytes()[:-3])
    data = bytearray(before.read_bytes())
    data[-2] ^= 0xFF
    before.write_bytes(data)
    kept = keep_last(list_black_boxes(tmp_path / "boxes"), 900.0, "incident", tmp_path / "sessions")
    assert kept.damaged_bytes > 0
    session = Session(tmp_path / "sessions" / "incident")
    assert recovery.verify(session).is_sound
    assert [record.index for record in reader.records(session.path)] == [0, 1, 2, 3, 4], "4 from the next snapshot"


def test_state_after_lost_records_is_in_what_is_kept(tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes", limits=RingLimits(MIB, 900.0))
    minutes(box, at_time, 1, 3)
    at_time(200 * SECOND)
    box.publish(*(box.record(200 * SECOND, index=3, name=os.urandom(8000).hex()) for _ in range(400)))  # too much
    box.until(lambda: box.messages)
    other = GpuInfo(node="node1", agent="x", seq=1, rx=201 * SECOND, uuid="GPU-2", index=9)
    box.publish(other)
    box.until(lambda: box.ring.wants_snapshot)
    at_time(202 * SECOND)
    box.state = [box.record(201 * SECOND, index=4)]
    box.snapshot()
    box.publish(box.record(203 * SECOND, index=5))
    box.until(lambda: not box.ring._busy and box.ring.has_begun(202 * SECOND) and not box.ring._waiting)
    box.ring.stop()
    kept = keep_last(list_black_boxes(tmp_path / "boxes"), 900.0, "incident", tmp_path / "sessions")
    records = list(reader.records(tmp_path / "sessions" / "incident"))
    assert [record.index for record in records] == [0, 1, 2, 9, 4, 5]
    assert kept.lost == 400


def test_targets_are_told_apart_and_an_unknown_one_names_the_others(tmp_path, quick, at_time):
    for name, target in (("a", "/a.toml"), ("b", "node[1-4]")):
        box = Box(tmp_path, name, target)
        minutes(box, at_time, 1, 2)
        box.kill()
    boxes = list_black_boxes(tmp_path)
    assert [box.session.name for box in choose(boxes, "x/../a.toml", "/a.toml")] == ["a"]
    assert [box.session.name for box in choose(boxes, "b", "b")] == ["b"], "by the name of the black box"
    with pytest.raises(SessionError, match=r"several targets.*: /a\.toml, node\[1-4\]"):
        choose(boxes, "", "")
    with pytest.raises(SessionError, match=r"no black box of c.*there is one of: /a\.toml, node\[1-4\]"):
        choose(boxes, "c", "c")
    with pytest.raises(SessionError, match="no black box: "):
        choose([], "", "")
    with pytest.raises(SessionError) as error:
        choose(boxes, "evil\x1b[2J\n", "evil")
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["../x", "a b", "", "-x", "x" * 65, "a/b", "\x1b[2J"])
def test_invalid_names_are_rejected_and_nothing_is_written(name, tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes")
    minutes(box, at_time, 1, 2)
    box.ring.stop()
    with pytest.raises(SessionError, match="not a valid session name"):
        keep_last(list_black_boxes(tmp_path / "boxes"), 60.0, name, tmp_path / "sessions")
    assert not (tmp_path / "sessions").exists()


def test_an_existing_session_is_not_replaced(tmp_path, quick, at_time):
    box = Box(tmp_path / "boxes")
    minutes(box, at_time, 1, 2)
    box.ring.stop()
    boxes = list_black_boxes(tmp_path / "boxes")
    keep_last(boxes, 60.0, "incident", tmp_path / "sessions")
    with pytest.raises(SessionError, match="exists already"):
        keep_last(boxes, 60.0, "incident", tmp_path / "sessions")


def test_black_boxes_of_ended_consoles_are_bounded_and_running_ones_are_never_deleted(tmp_path, quick, at_time):
    running = Box(tmp_path, "running")
    minutes(running, at_time, 1, 2)
    os.utime(running.session.path, (0, 0))
    for path in running.session.segments():
        os.utime(path, (0, 0))
    now_s = time.time()
    for number in range(black_boxes.MAX_ENDED + 3):
        box = Box(tmp_path, f"ended{number:02d}")
        minutes(box, at_time, 1, 2)
        box.kill()
        for path in (box.session.path, *box.session.segments()):
            os.utime(path, (now_s + number, now_s + number))
    delete_stale(tmp_path, 64 * MIB, int((now_s + 100) * 1e9))
    names = {box.session.name for box in list_black_boxes(tmp_path)}
    assert names == {"running"} | {f"ended{number:02d}" for number in range(3, black_boxes.MAX_ENDED + 3)}
    delete_stale(tmp_path, 1, int((now_s + 100) * 1e9))
    assert {box.session.name for box in list_black_boxes(tmp_path)} == {"running"}
    running.kill()
    delete_stale(tmp_path, 64 * MIB, int((now_s + 8 * 86_400) * 1e9))
    assert not list_black_boxes(tmp_path)


# -- in a console ------------------------------------------------------------------------------------------------------


class Console:
    """A hub with a black box."""

    def __init__(self, folder, config=None, **options):
        self.hub, self.published = Hub(), []
        self.hub.subscribe(self.published.extend)
        self.state = [ConsoleRecord(agent="c", seq=1, version="1", cluster="pod")]
        config = config or ConsoleConfig()
        self.box = BlackBox(self.hub, folder, config, lambda: self.state, "a pod!", "/hosts.toml", **options)

    async def started(self):
        self.box.start()
        if self.box._opening is not None:
            await self.box._opening
        return self

    def warnings(self):
        return [record.text for record in self.published if isinstance(record, Log) and record.severity == "warning"]

    async def publish(self, *records):
        self.hub.publish_own(*records)
        await asyncio.sleep(0)


async def test_error_finding_is_on_the_disk_within_seconds_and_a_console_of_use_leaves_its_ring(tmp_path, monkeypatch):
    monkeypatch.setattr("gconsole.session.record.black_box._LEAST_S", 0.0)
    monkeypatch.setattr(ring, "RING_GATHER_S", 3600.0)
    console = await Console(tmp_path / "boxes").started()
    await console.publish(NODE, Log(source="console", text="not urgent"))
    await console.publish(
        Finding(id="hung", severity="error", confidence="certain", text="rank 3", culprits=("rank 3",), first_seen=1)
    )
    deadline = time.monotonic() + DEADLINE_S
    while not (boxes := list_black_boxes(tmp_path / "boxes")) or boxes[0].records < 4:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    (box,) = boxes
    assert box.session.name.startswith("a-pod-")
    assert console.box.status().since == box.began
    for path in (box.session.path, *box.session.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    kept = await console.box.keep_last("incident", 900.0, tmp_path / "sessions")
    assert Counter(type(record).__name__ for record in reader.records(kept.path)) == {
        "ConsoleRecord": 1, "Node": 1, "Log": 1, "Finding": 1,
    }  # fmt: skip
    await console.box.close()
    (box,) = list_black_boxes(tmp_path / "boxes")
    assert (box.is_running, box.session.read().state) == (False, "closed")
    assert not console.warnings()


def test_thread_wakes_for_the_first_record_and_for_an_urgent_one_but_not_for_each_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(ring, "FLUSH_CHECK_S", 3600.0)
    monkeypatch.setattr(ring, "RING_GATHER_S", 3600.0)
    monkeypatch.setattr(ring, "GATHER_S", 0.0)
    wakes = []
    monkeypatch.setattr(ring, "is_flush_requested", lambda session: wakes.append(1) and False)
    box = Box(tmp_path)
    box.snapshot()
    box.written(1)
    before = len(wakes)
    for number in range(100):
        box.publish(box.record(number * SECOND, index=number))
        time.sleep(0.001)
    assert box.ring.meta.records == 1
    assert len(wakes) - before <= 3
    box.publish(Finding(node="", agent="c", seq=1, rx=SECOND, id="hung", severity="error", confidence="certain",
                        text="rank 3", culprits=("rank 3",), first_seen=1))  # fmt: skip
    box.written(102)
    box.ring.stop()


async def test_flush_writes_what_is_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr(ring, "RING_GATHER_S", 3600.0)
    console = await Console(tmp_path / "boxes").started()
    await console.publish(Log(source="console", text="not urgent"))
    kept = await console.box.keep_last("incident", 900.0, tmp_path / "sessions")
    assert [record.text for record in reader.records(kept.path) if isinstance(record, Log)] == ["not urgent"]
    await console.box.close()


async def test_recording_begins_with_the_past_and_holds_every_record_once(tmp_path):
    console = await Console(tmp_path / "boxes").started()
    recorder = Recorder(console.hub, tmp_path / "sessions", Limits(), lambda: console.state, black_box=console.box)
    began = time.time_ns()
    for number in range(20):
        await console.publish(Log(source="console", text=f"{number}"))
    assert not await recorder.start("night", since_s=60.0)
    for number in range(20, 40):
        await console.publish(Log(source="console", text=f"{number}"))
    await recorder.stop("night")
    session = Session(tmp_path / "sessions" / "night")
    records = list(reader.records(session.path))
    numbers = [int(record.text) for record in records if isinstance(record, Log) and len(record.text) <= 2]
    assert numbers == list(range(40))
    assert Counter((record.agent, record.seq) for record in records).most_common(1)[0][1] == 1
    meta = session.read()
    assert (meta.state, meta.records) == ("closed", len(records))
    assert [part.how for part in meta.parts] == ["stopped", "stopped"]
    assert meta.parts[0].began < meta.parts[1].began
    assert meta.span[0] <= began
    assert recovery.verify(session).is_sound
    assert not console.warnings()
    with pytest.raises(SessionError, match="exists already"):
        await recorder.start("night", since_s=60.0)
    await recorder.close()
    await console.box.close()


async def test_recording_without_a_past_begins_now_with_the_state_and_a_warning(tmp_path):
    console = await Console(tmp_path / "boxes", is_wanted=False).started()
    recorder = Recorder(console.hub, tmp_path / "sessions", Limits(), lambda: console.state, black_box=console.box)
    await recorder.start("night", since_s=60.0)
    await console.publish(Log(source="console", text="now"))
    await recorder.stop("night")
    records = list(reader.records(tmp_path / "sessions" / "night"))
    assert isinstance(records[0], ConsoleRecord)
    assert any("night begins now: the black box is not written" in text for text in console.warnings())
    await recorder.close()


async def test_recording_begins_with_the_state_where_the_black_box_cannot_be_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("gconsole.session.record.black_box._PAST_S", 0.2)
    console = await Console(tmp_path / "boxes").started()
    recorder = Recorder(console.hub, tmp_path / "sessions", Limits(), lambda: console.state, black_box=console.box)
    await console.publish(Log(source="console", text="before"))
    (tmp_path / "boxes").rename(tmp_path / "elsewhere")
    await recorder.start("night", since_s=60.0)
    await console.publish(Log(source="console", text="now"))
    await recorder.stop("night")
    await console.publish(Log(source="console", text="later"))
    records = list(reader.records(tmp_path / "sessions" / "night"))
    assert isinstance(records[0], ConsoleRecord)
    assert "now" in {record.text for record in records if isinstance(record, Log)}
    assert any("begins now: the black box cannot be copied" in text for text in console.warnings())
    await recorder.close()
    await console.box.close()


async def test_secrets_and_locals_are_not_in_the_black_box(tmp_path):
    console = await Console(tmp_path).started()
    await console.publish(Log(source="console", severity="error", text="HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz123456"))
    deadline = time.monotonic() + DEADLINE_S
    while not (boxes := list_black_boxes(tmp_path)) or boxes[0].records < 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    texts = [record.text for record in reader.records(boxes[0].session.path) if isinstance(record, Log)]
    assert texts
    assert not any("abcdefgh" in text for text in texts)
    await console.box.close()


async def test_console_that_saw_nothing_or_ran_for_seconds_leaves_nothing(tmp_path, monkeypatch):
    console = await Console(tmp_path).started()
    await console.publish(NODE)
    await console.box.close()
    monkeypatch.setattr("gconsole.session.record.black_box._LEAST_S", 0.0)
    console = await Console(tmp_path).started()
    await console.publish(Log(source="console", text="no node"))
    await console.box.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"config": ConsoleConfig(black_box=False)}, {"is_wanted": False}])
async def test_switched_off_it_writes_nothing_and_keeping_is_refused(options, tmp_path):
    console = await Console(tmp_path / "boxes", **options).started()
    await console.publish(NODE)
    assert console.box.status() is None
    with pytest.raises(SessionError, match="black_box"):
        await console.box.keep_last("incident", 900.0, tmp_path / "sessions")
    await console.box.close()
    assert not (tmp_path / "boxes").exists()


async def test_folder_that_cannot_be_written_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    console = await Console(tmp_path / "file").started()
    for _ in range(3):
        await console.publish(NODE)
    assert len(console.warnings()) == 1
    assert "black box: cannot write in" in console.warnings()[0]
    assert len([record for record in console.published if isinstance(record, Node)]) == 3
    await console.box.close()
