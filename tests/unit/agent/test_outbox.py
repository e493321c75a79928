"""Outbox: every record is delivered once or reported as lost once, across reconnects."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole_remote.agent import wire
from gconsole_remote.agent.outbox import Outbox
from gconsole_remote.clocks import stamps

ROOMY = 1 << 20
TIGHT = 4000


def a_fact(size: int = 10) -> tuple[str, dict]:
    return ("log", {"source": "agent", "text": "x" * size})


def post(outbox: Outbox, *sizes: int) -> None:
    outbox.post([a_fact(size) for size in sizes])


def taken(outbox: Outbox, turn: int) -> list[dict]:
    """Frames of one batch."""
    return [wire.decode(line) for line in outbox.next_bytes(turn, 0.0, 0.0).splitlines()]


def seqs(frames: list[dict]) -> list[int]:
    return [frame["seq"] for frame in frames if "kind" in frame]


@dataclass
class Console:
    """The receiving side: sequence numbers received, and those reported as lost."""

    outbox: Outbox
    turn: int = 0
    received: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max(self.received[-1:] + self.lost[-1:], default=0)

    def connect(self) -> None:
        self.turn = self.outbox.rewind(self.last)

    def take(self, share: float = 1.0) -> None:
        """Receive one batch, of which only the first `share` of the lines arrives before the connection breaks."""
        frames = taken(self.outbox, self.turn)
        for frame in frames[: round(len(frames) * share)]:
            if "gap" in frame:
                first, last = frame["gap"]
                assert first == self.last + 1, "a gap takes the place of its records"
                self.lost.extend(range(first, last + 1))
            else:
                assert frame["seq"] == self.last + 1, "records arrive in order and without gaps"
                self.received.append(frame["seq"])

    def acknowledge(self, back: int) -> None:
        self.outbox.acknowledge(max(0, self.last - back))

    def drain(self) -> None:
        self.connect()
        while not self.accounts_for(self.outbox.last_seq):
            before = self.last
            self.take()
            assert self.last > before, "a held record is not delivered"

    def accounts_for(self, posted: int) -> bool:
        return sorted(self.received + self.lost) == list(range(1, posted + 1))


POST = st.tuples(st.just("post"), st.lists(st.integers(0, 400), max_size=6))
TAKE = st.tuples(st.just("take"), st.none())
ACKNOWLEDGE = st.tuples(st.just("acknowledge"), st.integers(0, 20))
CUT = st.tuples(st.just("cut"), st.floats(0, 1))
ACTIONS = st.lists(st.one_of(POST, POST, TAKE, ACKNOWLEDGE, CUT), max_size=60)


def replay_actions(actions: list, console: Console) -> None:
    console.connect()
    for act, argument in actions:
        if act == "post":
            post(console.outbox, *argument)
        elif act == "take":
            console.take()
        elif act == "acknowledge":
            console.acknowledge(argument)
        else:
            console.take(argument)
            console.connect()
    console.drain()


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(ACTIONS)
def test_records_within_the_limit_are_delivered_exactly_once(actions):
    console = Console(Outbox(ROOMY, keep=True))

    replay_actions(actions, console)

    assert console.received == list(range(1, console.outbox.last_seq + 1))
    assert not console.lost


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(ACTIONS)
def test_every_record_over_the_limit_is_either_received_or_counted_lost_once(actions):
    console = Console(Outbox(TIGHT, keep=True))

    replay_actions(actions, console)

    assert console.accounts_for(console.outbox.last_seq)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(POST, TAKE), max_size=60))
def test_outbox_without_keep_delivers_or_counts_every_record(actions):
    console = Console(Outbox(TIGHT, keep=False))

    replay_actions(actions, console)

    assert console.accounts_for(console.outbox.last_seq)


def test_overflowing_buffer_holds_about_its_limit_and_reports_a_gap():
    outbox = Outbox(TIGHT, keep=True)

    for _ in range(200):
        post(outbox, 300)

    assert outbox._held <= TIGHT + TIGHT // 8 + 500
    [gap, *records] = taken(outbox, outbox.rewind(0))
    assert gap["gap"] == [1, records[0]["seq"] - 1]
    assert "4000 bytes" in gap["reason"]


def test_unconfirmed_gap_is_sent_again_on_the_next_connection():
    outbox = Outbox(TIGHT, keep=True)
    for _ in range(100):
        post(outbox, 300)
    first = taken(outbox, outbox.rewind(0))

    again = taken(outbox, outbox.rewind(0))

    assert again == first


def test_gap_excludes_dropped_records_that_were_already_received():
    outbox = Outbox(TIGHT, keep=True)
    turn = outbox.rewind(0)
    post(outbox, *[10] * 6)
    assert seqs(taken(outbox, turn)) == [1, 2, 3, 4, 5, 6]
    for _ in range(100):
        post(outbox, 300)

    [gap, *_] = taken(outbox, outbox.rewind(4))

    assert gap["gap"][0] == 5


def test_acknowledged_records_are_not_reported_as_a_gap_after_a_rewind():
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    post(outbox, 1, 2, 3)
    taken(outbox, turn)
    outbox.acknowledge(3)
    post(outbox, 4)

    assert seqs(taken(outbox, outbox.rewind(0))) == [4]


@pytest.mark.parametrize("seq", [-1, 0, 99, 2**70])
def test_invalid_acknowledgement_drops_no_unsent_record(seq):
    outbox = Outbox(ROOMY, keep=True)
    post(outbox, 1, 2)

    outbox.acknowledge(seq)

    assert seqs(taken(outbox, outbox.rewind(0))) == [1, 2]


def test_large_buffer_is_sent_in_bounded_chunks():
    outbox = Outbox(64 << 20, keep=True)
    for _ in range(100):
        post(outbox, 60_000)
    turn = outbox.rewind(0)

    sizes = []
    while data := outbox.next_bytes(turn, 0.0, 0.0):
        sizes.append(len(data))

    assert max(sizes) < 512 << 10
    assert sum(sizes) > 5 << 20


def test_control_frames_precede_records_and_are_dropped_with_their_connection():
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    post(outbox, 1)
    outbox.control({"pong": 1})
    assert [next(iter(frame)) for frame in taken(outbox, turn)] == ["pong", "kind"]

    outbox.control({"pong": 2})
    turn = outbox.rewind(1)

    assert taken(outbox, turn) == []


def test_writer_of_an_old_connection_gets_no_data_of_the_new_one():
    outbox = Outbox(ROOMY, keep=True)
    old = outbox.rewind(0)
    new = outbox.rewind(0)
    outbox.control({"gconsole": "hello"})
    post(outbox, 1)

    assert outbox.next_bytes(old, 0.0, 0.0) is None
    assert len(taken(outbox, new)) == 2


def test_blocked_writer_returns_when_its_connection_is_replaced():
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    got = []
    waiting = threading.Thread(target=lambda: got.append(outbox.next_bytes(turn, 30.0, 0.0)), daemon=True)
    waiting.start()

    deadline = time.monotonic() + 5
    while waiting.is_alive() and time.monotonic() < deadline:
        outbox.rewind(0)
        waiting.join(0.01)

    assert got == [None]


def test_reply_is_sent_without_waiting_for_the_records_of_the_tick():
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    post(outbox, 1)
    outbox.control({"pong": 1})
    began = time.monotonic()

    outbox.next_bytes(turn, 0.0, 30.0)

    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["job", "job_node"])
def test_state_of_a_job_is_sent_without_waiting_for_the_records_of_the_tick(kind):
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    got: list[bytes] = []
    writer = threading.Thread(target=lambda: got.append(outbox.next_bytes(turn, 60.0, 30.0)), daemon=True)
    writer.start()
    post(outbox, 1)
    began = time.monotonic()
    outbox.post([(kind, {"job": "train"})])
    writer.join(60.0)

    assert time.monotonic() - began < 20
    assert [wire.decode(line)["seq"] for line in got[0].splitlines()] == [1, 2]
    post(outbox, 1)
    assert outbox.next_bytes(turn, 0.0, 0.2).count(b"\n") == 1, "the next tick waits again"


def sent_after(outbox: Outbox, turn: int, act) -> tuple[float, list[str]]:
    """Seconds until the writer sends something after `act`, which runs beside it, and the kinds that it sends."""
    got: list[bytes] = []
    writer = threading.Thread(target=lambda: got.append(outbox.next_bytes(turn, 60.0, 0.0)), daemon=True)
    writer.start()
    began = time.monotonic()
    act()
    writer.join(60.0)
    return time.monotonic() - began, [wire.decode(line).get("kind", "") for line in got[0].splitlines()]


HELD = ["agent_cost", "clock_snapshot"]


def tick(outbox: Outbox) -> None:
    outbox.post([("agent_cost", {"cpu_pct": 0.1}), ("clock_snapshot", {"step_ns": 0})])


@pytest.mark.parametrize(
    ("act", "kinds"),
    [
        (lambda outbox: outbox.post([("rank_stat", {"pid": 1})]), [*HELD, "rank_stat"]),
        (lambda outbox: outbox.post([("log", {"text": "x"})]), [*HELD, "log"]),
        (lambda outbox: outbox.control({"pong": 1}), ["", *HELD]),
        (lambda outbox: outbox.post([("clock_cost", {"cpu_pct": 0.1})]), [*HELD, "clock_cost"]),
        (lambda outbox: outbox.post([("clock_snapshot", {"step_ns": -9})]), [*HELD, "clock_snapshot"]),
        (lambda outbox: outbox.hold(0.0), HELD),
    ],
)
def test_held_ticks_are_sent_with_what_may_not_wait(act, kinds):
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    outbox.hold(3000.0)

    def tick_and_act() -> None:
        tick(outbox)
        deadline = time.monotonic() + 5
        while not outbox._is_gathering and time.monotonic() < deadline:  # until the writer holds the tick back
            time.sleep(0.001)
        act(outbox)

    elapsed_s, sent = sent_after(outbox, turn, tick_and_act)

    assert sent == kinds
    assert elapsed_s < 60.0


@pytest.mark.parametrize(
    ("now_s", "rest_s"), [(100.75, 5.0), (101.0, 4.75), (105.5, 0.25), (105.75, 5.0)], ids=lambda value: f"{value:g}"
)
def test_held_records_are_due_half_a_second_after_a_full_period(monkeypatch, now_s, rest_s):
    outbox = Outbox(ROOMY, keep=True)
    outbox.hold(5.0, offset_s=0.25)
    monkeypatch.setattr(stamps, "realtime_ns", lambda: int(now_s * 1e9))

    assert outbox._held_s() == rest_s


def test_ticks_that_are_held_back_are_sent_together(monkeypatch):
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)
    outbox.hold(5.0)
    monkeypatch.setattr(stamps, "realtime_ns", lambda: 5_000_000_000)  # half a second before held records are due

    _, sent = sent_after(outbox, turn, lambda: [tick(outbox) for _ in range(3)])

    assert sent == HELD * 3


def test_next_connection_holds_nothing_back_until_it_is_ordered():
    outbox = Outbox(ROOMY, keep=True)
    outbox.rewind(0)
    outbox.hold(3000.0)
    turn = outbox.rewind(0)

    elapsed_s, sent = sent_after(outbox, turn, lambda: tick(outbox))

    assert sent == HELD and elapsed_s < 60.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes"])
def test_record_that_json_cannot_encode_is_replaced_by_an_error_log(value):
    outbox = Outbox(ROOMY, keep=True)

    outbox.post([a_fact(), ("host", {"cpu_pct": value}), a_fact()])

    [_, log, _] = taken(outbox, outbox.rewind(0))
    assert (log["kind"], log["seq"], log["severity"]) == ("log", 2, "error")
    assert "host" in log["text"]


def test_record_over_the_line_limit_is_replaced_by_an_error_log(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 100_000)
    outbox = Outbox(ROOMY, keep=True)

    post(outbox, 200_000)

    [log] = taken(outbox, outbox.rewind(0))
    assert "200" in log["text"] and log["severity"] == "error"


def test_encoded_record_starts_with_its_kind():
    outbox = Outbox(ROOMY, keep=True)
    post(outbox, 1)

    assert outbox.next_bytes(outbox.rewind(0), 0.0, 0.0).startswith(b'{"kind":"log","seq":1,')


@pytest.mark.parametrize("fields", [{"index": 0, "name": "a\tb \ud800"}, {"text": "x" * 100_000}])
def test_record_encoded_in_another_process_is_sent_like_any_other(fields):
    outbox = Outbox(ROOMY, keep=True)

    outbox.post([("gpu", wire.to_json(fields)), ("gpu", fields)])

    encoded, other = taken(outbox, outbox.rewind(0))
    assert (encoded.pop("seq"), other.pop("seq")) == (1, 2)
    assert encoded == other and encoded["kind"] == "gpu"


def test_records_posted_by_many_threads_have_consecutive_sequence_numbers():
    outbox = Outbox(ROOMY, keep=True)
    threads = [threading.Thread(target=lambda: [post(outbox, 1, 2) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    turn, found = outbox.rewind(0), []
    while frames := taken(outbox, turn):
        found += seqs(frames)

    assert found == list(range(1, 401))


def test_posted_bytes_counts_encoded_records_without_control_frames():
    outbox = Outbox(ROOMY, keep=False)
    turn = outbox.rewind(0)
    post(outbox, 10, 20)
    outbox.control({"pong": 1})

    data = outbox.next_bytes(turn, 0.0, 0.0)

    assert outbox.posted_bytes == len(data) - len(json.dumps({"pong": 1}, separators=(",", ":"))) - 1


def test_empty_post_sends_no_bytes():
    outbox = Outbox(ROOMY, keep=True)
    turn = outbox.rewind(0)

    outbox.post([])

    assert outbox.next_bytes(turn, 0.0, 0.0) == b""
    assert outbox.last_seq == 0
