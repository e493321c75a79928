"""The traffic of ranks in short intervals: of real connections and network namespaces, and of the files of a port."""

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from gconsole.analysis.step_clock import period_of_curve
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers import traffic
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.traffic import Intervals, TrafficSampler

#: A program that exchanges data over the loopback interface: seconds of a step, its bytes, seconds until it reconnects.
STEPS = """
import socket, sys, threading, time
step_s, size, again_s = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
server = socket.create_server(("127.0.0.1", 0))
def receive(connection):
    while connection.recv(65536):
        pass
    connection.close()
def connected():
    a = socket.create_connection(server.getsockname())
    threading.Thread(target=receive, args=server.accept()[:1], daemon=True).start()
    return a
a = connected()
print("ready", flush=True)
due = began = time.monotonic()
while True:
    due += step_s
    time.sleep(max(0.0, due - time.monotonic()))
    if due - began > again_s:
        a.close()
        a, began = connected(), due + 1e9
    a.sendall(bytes(size))
"""


@contextmanager
def running(step_s, size, *before, again_s=1e9):
    argv = [*before, sys.executable, "-c", STEPS, str(step_s), str(size), str(again_s)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def rank_of(pid):
    start_ticks = ProcFs("/proc").stat(pid).start_ticks
    return SimpleNamespace(job="llama", attempt=0, rank=3, pid=pid, start_ticks=start_ticks)


def sampler(*ranks, sys_root="/nonexistent"):
    context = Context()
    context.sys = sys_root
    context.shared["processes"] = SimpleNamespace(ranks=ranks)
    context.shared["traffic"] = [(rank.pid, rank.start_ticks) for rank in ranks]
    return TrafficSampler(context)


def read(made, seconds):
    """The fields of the records of so many ticks, one a second."""
    facts = []
    for _ in range(seconds):
        began = time.monotonic()
        facts += [fields for kind, fields in made.tick(began) if kind == "rank_traffic"]
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    return facts


def curve_of(records):
    """All intervals from the first one to the last one; NaN where unknown."""
    length = records[0]["every_ms"] * 1_000_000
    first = records[0]["began"] // length
    values = np.full(records[-1]["began"] // length + len(records[-1]["moved_bytes"]) - first, np.nan)
    for fields in records:
        begin = fields["began"] // length - first
        values[begin : begin + len(fields["moved_bytes"])] = fields["moved_bytes"]
    return values


def test_steps_of_a_quarter_of_a_second_show_in_the_connections_of_a_rank():
    with running(0.25, 400_000) as pid:
        made = sampler(rank_of(pid))
        records = read(made, 8)
        made.stop()
    assert {(fields["source"], fields["rank"], fields["pid"]) for fields in records} == {("tcp", 3, pid)}
    values = curve_of(records)
    assert np.isnan(values).mean() < 0.1
    period = period_of_curve(values)
    assert period is not None
    assert period.length * records[0]["every_ms"] / 1e3 == pytest.approx(0.25, rel=0.02)
    # both ends are of this process: each step counts twice
    assert np.nanmean(values) * 1e3 / records[0]["every_ms"] == pytest.approx(4 * 2 * 400_000, rel=0.2)


@pytest.mark.skipif(os.geteuid() != 0, reason="creates a network namespace")
def test_rank_in_another_network_namespace_shows_them_in_its_interfaces():
    up = 'ip link set lo up && exec "$0" "$@"'
    with running(0.3, 400_000, "unshare", "--net", "sh", "-c", up) as pid:
        made = sampler(rank_of(pid))
        records = read(made, 4)
    assert {fields["source"] for fields in records} == {"interfaces"}
    assert np.nanmax(curve_of(records)) >= 400_000


def test_port_that_moves_most_is_read_where_connections_are_silent(tmp_path):
    ports = [tmp_path / f"class/infiniband/mlx5_{number}/ports/1/counters" for number in (0, 1)]
    for port in ports:
        port.mkdir(parents=True)
        for name in ("port_xmit_data", "port_rcv_data"):
            (port / name).write_text("1000\n")
    over = threading.Event()

    def send():
        count = 1000
        while not over.wait(0.02):
            count += 50_000
            (ports[1] / "draft").write_text(f"{count}\n")
            (ports[1] / "draft").replace(ports[1] / "port_xmit_data")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        made = sampler(rank_of(os.getpid()), sys_root=str(tmp_path))
        records = read(made, 4)
    finally:
        over.set()
        sender.join()
    assert {fields["source"] for fields in records} == {"rdma"}
    assert np.nanmean(curve_of(records)) > 100_000, "in words of four bytes"


def test_nothing_is_read_of_ranks_that_were_not_ordered_or_do_not_live_here():
    made = sampler(rank_of(os.getpid()))
    made.context.shared["traffic"] = [(os.getpid(), 1), (999_999, 7)]
    began = time.monotonic()
    assert list(made.tick(began)) == []
    assert not made._meters


def test_nothing_is_read_while_the_agent_exceeds_its_budget():
    made = sampler(rank_of(os.getpid()))
    made.context.interval_s = 2 * made.context.configured_s
    assert list(made.tick(time.monotonic())) == []
    assert not made._meters


def test_sampler_waits_while_there_is_something_to_read_only(monkeypatch):
    monkeypatch.setattr(traffic, "UNREAD_S", 0.5)
    made = sampler(rank_of(os.getpid()))
    assert made.waits, "the first tick may read"
    made.tick(time.monotonic())
    time.sleep(0.5)
    made.tick(time.monotonic())
    assert not made.waits
    with running(0.2, 200_000) as pid:
        rank = rank_of(pid)
        made.context.shared["processes"] = SimpleNamespace(ranks=(rank,))
        made.context.shared["traffic"] = [(rank.pid, rank.start_ticks)]
        while not made.waits:
            assert not made.tick(time.monotonic()), "what is read takes a second, in which others wait"
        assert read(made, 3)
        made.stop()


def test_rank_whose_connections_end_is_read_by_its_next_ones():
    with running(0.2, 200_000, again_s=4.0) as pid:
        made = sampler(rank_of(pid))
        records = read(made, 10)
        made.stop()
    values, every_s = curve_of(records), records[0]["every_ms"] / 1e3
    pause = np.flatnonzero(np.isnan(values))
    assert len(pause) > 1 / every_s, "until the next ones were selected"
    for part in (values[: pause[0]], values[pause[-1] + 1 :]):
        assert len(part) >= 1 / every_s
        assert part.mean() / every_s == pytest.approx(5 * 2 * 200_000, rel=0.4)


def test_intervals_are_longer_where_they_cost_too_much(monkeypatch):
    monkeypatch.setattr(traffic, "MOST_PCT", 0.0)
    monkeypatch.setattr(traffic, "COST_TICKS", 2)
    monkeypatch.setattr(traffic, "SELECT_S", 0.5)
    with running(0.2, 200_000) as pid:
        made = sampler(rank_of(pid))
        records = read(made, 8)
    assert [fields["every_ms"] for fields in records] == sorted(fields["every_ms"] for fields in records)
    assert records[0]["every_ms"] == 50
    assert records[-1]["every_ms"] > 50
    assert made._every_ms <= traffic.LONGEST_MS


@pytest.mark.parametrize("seed", range(20))
def test_intervals_of_irregular_readings_add_up_to_the_growth_of_the_counter(seed):
    chance, intervals = random.Random(seed), Intervals(50)
    at = count = chance.randrange(10_000)
    readings = []
    for _ in range(200):
        at += chance.randrange(1, 120)
        count += chance.randrange(0, 5_000)
        readings.append((at, count))
        intervals.add(at, count)
    [(began, growth)] = intervals.pop_runs()
    assert began % 50 == 0
    ends = began + 50 * len(growth)
    instants, counts = zip(*readings, strict=True)
    between = np.interp(ends, instants, counts) - np.interp(began, instants, counts)
    assert sum(growth) == pytest.approx(between, abs=2)
    assert ends > readings[-1][0] - 50
    assert intervals.pop_runs() == []


def test_intervals_of_a_pause_and_of_a_counter_that_began_again_are_unknown():
    intervals = Intervals(50)
    for at in range(0, 1_000, 50):
        intervals.add(at, at)
    for at in range(2_000, 3_000, 50):
        intervals.add(at, at)
    for at in range(3_000, 4_000, 50):
        intervals.add(at, at - 3_000)
    runs = [(began, len(growth)) for began, growth in intervals.pop_runs()]
    assert runs == [(50, 18), (2_050, 18), (3_050, 18)], "from the first edge behind a reading on"
