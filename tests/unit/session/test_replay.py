"""Replay: the state at an instant equals that of a live console then, and the player controls time."""

import copy
import shutil

import numpy as np
import pytest
from session_files import SECOND, crashed_session

from gconsole.core.control import CaptureRequest
from gconsole.core.store import Store
from gconsole.records import Finding, Gpu, GpuInfo, Host, Mark, Node, NodeState, Rank, RankStat, Stack
from gconsole.session import replay
from gconsole.session.format import index, writer, zstd_frames
from gconsole.session.format.layout import Meta, RecorderRun, SessionError, named
from gconsole.session.manage.compact import compact
from gconsole.session.replay import NotLive, Replay

BEGAN = 1_700_000_000 * SECOND
LENGTH_S = 900


def night() -> list:
    """Fifteen minutes of a node with one GPU and one rank, a finding that opens and clears, and a marker."""
    seq = 0
    written = []

    def say(second, *records):
        nonlocal seq
        for record in records:
            seq += 1
            record.agent, record.seq, record.node = "agent1", seq, "node1"
            record.t = record.rx = BEGAN + second * SECOND
            record.mono = second * SECOND
            written.append(record)

    say(0, NodeState(state="ok"), Node(hostname="node1", boot_id="b", kernel="k", arch="x", python="3", uid=0, pid=1,
                                       sample_interval_ms=1000), GpuInfo(index=0, uuid="GPU-1"),
        Rank(job="j", rank=0, pid=7, start_ticks=1, source="environ"))  # fmt: skip
    for second in range(1, LENGTH_S):
        say(second, Host(cpu_pct=float(second % 100)), Gpu(index=0, uuid="GPU-1", util_pct=float(second % 100)),
            RankStat(job="j", rank=0, pid=7, start_ticks=1, state="moving"))  # fmt: skip
        if second == 400:
            say(second, Finding(id="gpu_idle", severity="warning", confidence="likely", text="x", first_seen=1))
        if second == 500:
            say(second, Mark(text="here"))
        if second == 600:
            say(second, Finding(id="gpu_idle", severity="warning", confidence="likely", text="x", first_seen=1,
                                cleared_at=2), NodeState(state="lost"))  # fmt: skip
    return written


@pytest.fixture
def session(tmp_path):
    made = named("night", tmp_path)
    writer.write_session(
        made, night(), Meta(cluster="pod", created=BEGAN, parts=(RecorderRun(began=BEGAN, how="stopped"),))
    )
    return made


def known(store):
    """All tables and events that views read from a store, without time series."""
    tables = (store.nodes, store.gpus, store.ranks, store.processes, store.findings)
    return [{key: table[key] for key in table} for table in tables], [record for _, record in store.events]


def live_at(second):
    store = Store()
    for record in night():
        if record.rx <= BEGAN + second * SECOND:
            store.apply([record])
    return store


@pytest.mark.parametrize("second", [0, 1, 250, 399, 400, 550, 600, LENGTH_S - 1])
def test_replay_after_a_jump_matches_the_live_store_at_that_time(session, second):
    player = Replay(session)
    player.jump(BEGAN + second * SECOND)
    assert known(player.store) == known(live_at(second))
    assert player.store.newest_rx == BEGAN + second * SECOND


def test_replay_played_to_the_end_matches_the_final_live_store(session):
    player = Replay(session)
    player.is_playing, player.speed = True, 100.0
    while player.is_playing:
        player.advance(0.5)
    assert known(player.store) == known(live_at(LENGTH_S))
    assert player.position == player.end == BEGAN + (LENGTH_S - 1) * SECOND


def test_replay_time_advances_at_the_set_speed_only_while_playing(session):
    player = Replay(session)
    player.advance(10.0)
    assert player.position == BEGAN, "paused until play() is called"
    player.is_playing = True
    player.advance(10.0)
    assert player.store.gpus["node1", "GPU-1"].gpu.util_pct == 10.0
    player.faster(1)
    player.advance(10.0)
    assert (player.speed, player.position) == (2.0, BEGAN + 30 * SECOND)
    for _ in range(20):
        player.faster(-1)
    assert player.speed == 0.25


def test_jump_back_removes_later_findings_and_states(session):
    player = Replay(session)
    player.jump(BEGAN + 700 * SECOND)
    assert len(player.store.events) > 1
    player.jump(BEGAN + 100 * SECOND)
    assert not len(player.store.findings)
    assert player.store.nodes["node1"].state.state == "ok"


def test_jumps_stay_within_the_session(session):
    player = Replay(session)
    player.jump(0)
    assert player.position == player.begin
    player.jump(2**62)
    assert player.position == player.end


def test_player_finds_events_and_the_next_and_previous_one(session):
    player = Replay(session)
    player.find_events()
    assert [((event.rx - BEGAN) // SECOND, event.what) for event in player.events] == [
        (400, "finding"), (500, "mark"), (600, "node lost")
    ]  # fmt: skip
    player.jump(player.event_after().rx)
    assert player.event_after().what == "mark"
    player.jump(player.event_after().rx)
    assert player.event_before().what == "finding"
    player.jump(player.end)
    assert player.event_after() is None


def test_capture_event_has_the_time_of_its_last_stack(tmp_path):
    def stack(second, rank):
        at = BEGAN + second * SECOND
        return Stack(node="node1", agent="agent1", seq=second + 1, t=at, rx=at, capture="c", sample=0, job="j",
                     rank=rank, pid=7 + rank, start_ticks=1, status="ok")  # fmt: skip

    made = named("captured", tmp_path)
    writer.write_session(made, [stack(second, second) for second in range(4)])
    player = Replay(made)
    player.find_events()
    assert [(event.what, (event.rx - BEGAN) // SECOND) for event in player.events] == [("capture", 3)]


async def test_live_actions_are_rejected_in_a_replay(session):
    player = Replay(session)
    for action in (player.reconnect("node1"), player.capture(CaptureRequest("x")), player.mark("x")):
        with pytest.raises(NotLive, match="recording"):
            await action
    assert player.recordings is None


def test_crashed_session_is_replayed_without_being_recovered(tmp_path):
    session = crashed_session(tmp_path, "night", [night()[:50], night()[50:100]])
    (path,) = session.segments()
    path.write_bytes(path.read_bytes()[:-20])
    player = Replay(session)
    player.jump(player.end)
    assert [damage.what for damage in player.damages] == ["torn"]
    assert session.read().state == "recording"


def test_replay_of_a_session_without_records_is_rejected(tmp_path):
    with pytest.raises(SessionError, match="no record"):
        Replay(crashed_session(tmp_path, "empty", []))


def test_slow_disk_lowers_the_real_replay_speed_without_skipping_records(session, monkeypatch):
    monkeypatch.setattr(replay, "STEP_S", 0.0)
    monkeypatch.setattr(replay, "_BATCH_RECORDS", 30)
    player = Replay(session)
    player.is_playing, player.speed = True, 100.0
    player.advance(1.0)
    assert player.position < BEGAN + 100 * SECOND
    assert player.real_speed is not None
    assert player.real_speed < 100.0
    while player.is_playing:
        player.advance(1.0)
    assert player.real_speed is None
    assert known(player.store) == known(live_at(LENGTH_S))


# -- long sessions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def blocks_of_a_minute(monkeypatch):
    monkeypatch.setattr("gconsole.session.format.index.BLOCK_RECORDS", 180)
    monkeypatch.setattr("gconsole.session.format.writer.FRAME_RECORDS", 30)


def shown(player):
    return player.begin, player.end, [event.what for event in player.events], known(player.store)


@pytest.mark.slow
def test_jumps_show_the_same_with_or_without_an_index_or_from_parquet(blocks_of_a_minute, session):
    seconds = [0, 399, 30, 10_000, 610, 850, 400]
    plain = Replay(session, history_bytes=1 << 28)
    plain.find_events()
    from_segments = [after_a_jump(plain, second) for second in seconds]
    indexed = Replay(session, history_bytes=1 << 28)
    indexed.build_index()
    indexed.find_events()
    with_index = [after_a_jump(indexed, second) for second in seconds]
    shutil.rmtree(session.path / "index")
    compact(session)
    compacted = Replay(session, history_bytes=1 << 28)
    compacted.find_events()
    beside_segments = [after_a_jump(compacted, second) for second in seconds]
    for path in session.segments():
        path.unlink()
    out_of_parquet = Replay(session, history_bytes=1 << 28)
    out_of_parquet.find_events()
    from_parquet = [after_a_jump(out_of_parquet, second) for second in seconds]

    for each in zip(seconds, from_segments, with_index, beside_segments, from_parquet, strict=True):
        assert each[1] == each[2] == each[3] == each[4], f"after a jump to {each[0]} s"


def after_a_jump(player, second):
    player.jump(BEGAN + second * SECOND)
    return copy.deepcopy(shown(player))


@pytest.mark.slow
@pytest.mark.parametrize("second", [20, 399, 610, 850])
def test_quick_jump_shows_the_current_state_and_backfills_the_history(session, second):
    at = BEGAN + second * SECOND
    full, quick = Replay(session, history_bytes=1 << 28), Replay(session, history_bytes=1 << 28)
    full.jump(at)

    quick.jump_quickly(at)

    assert known(quick.store)[1] == known(full.store)[1]
    assert quick.store.gpus["node1", "GPU-1"].gpu == full.store.gpus["node1", "GPU-1"].gpu
    assert quick.needs_backfill is (second > 30)
    before, looked_at = curve(quick.store), quick.store
    if quick.needs_backfill:
        assert np.isnan(before).sum() > np.isnan(curve(full.store)).sum()
        quick.backfill()
        quick.apply_backfill()
    assert quick.store is looked_at, "the store is not replaced"
    assert known(quick.store) == known(full.store)
    np.testing.assert_array_equal(curve(quick.store), curve(full.store))


def curve(store):
    return store.history.series["gpu"].recent(("node1", "GPU-1"), "util_pct")


def test_replay_pauses_until_the_backfill_is_applied(session):
    player = Replay(session)
    player.is_playing = True
    player.jump_quickly(BEGAN + 500 * SECOND)
    player.advance(5.0)
    assert player.position == BEGAN + 500 * SECOND
    player.backfill()
    player.apply_backfill()
    player.advance(5.0)
    assert player.position == BEGAN + 505 * SECOND


def test_backfill_is_cancelled_by_a_jump_elsewhere(session):
    player = Replay(session, history_bytes=1 << 28)
    player.jump_quickly(BEGAN + 800 * SECOND)
    before = curve(player.store)
    player.backfill()
    player.cancel_backfill()
    player.jump_quickly(BEGAN + 750 * SECOND)
    player.apply_backfill()
    assert not player.needs_backfill
    assert not np.array_equal(curve(player.store), before, equal_nan=True), "state of the target instant"


def test_jump_with_an_index_does_not_read_the_blocks_it_covers(blocks_of_a_minute, session):
    Replay(session).build_index()
    way = index.open_index(session)
    (path,) = session.segments()
    blocks = way.segments[path.name].blocks
    assert len(blocks) > 10
    data = bytearray(path.read_bytes())
    middle = blocks[len(blocks) // 2]
    data[middle.begin : middle.end] = bytes(middle.end - middle.begin)  # undetected, since the length is equal
    path.write_bytes(data)

    player = Replay(session)
    player.jump(player.end)

    assert not player.damages
    assert player.store.findings, "changes in between come from the index"


def test_jump_without_an_index_takes_the_state_from_compacted_tables(blocks_of_a_minute, session):
    compact(session)
    (path,) = session.segments()
    frames = list(zstd_frames.scan(path))
    data = bytearray(path.read_bytes())
    for frame in frames[1 : len(frames) // 2]:
        data[frame.start] ^= 1  # undetected, since the length is equal
    path.write_bytes(data)

    player = Replay(session)
    player.jump(player.end)

    assert len(frames) > 10
    assert not player.damages
    assert player.store.findings


def test_jump_does_not_read_damaged_tables(blocks_of_a_minute, session):
    for part in compact(session).parts:
        path = session.parquet_folder / part.path
        path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    player = Replay(session)
    player.jump(player.end)
    assert not player.damages
    assert player.store.findings


def test_grown_or_damaged_segment_is_read_without_the_index(blocks_of_a_minute, session):
    (path,) = session.segments()
    index.build_index(session)
    with path.open("ab") as file:
        file.write(b"torn")
    assert not index.open_index(session).segments
    assert not index.build_index(session).segments
    player = Replay(session)
    player.jump(player.end)
    assert player.damages and player.store.findings


def test_replay_works_when_the_index_cannot_be_written(session, monkeypatch, tmp_path):
    (session.path / "index").write_text("in the way")
    player = Replay(session)
    player.build_index()
    player.jump(player.end)
    assert player.store.findings
    assert (session.path / "index").read_text() == "in the way"
