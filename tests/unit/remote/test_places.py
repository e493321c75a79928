"""Light stack samples of real processes by the real py-spy: where the main thread is, and since when."""

import random
import subprocess
import sys
import time

import pytest
from test_watched_variables import Agent, seen

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.locals import WatchedSampler
from gconsole_remote.samplers.places import TCP_NS, PlaceTracker, SamplingEffect, place_and_path

READY = 'import os, sys, time\nsys.stdout.write("ready\\n"); sys.stdout.flush()\n'
POLLS = READY + "def poll():\n    while not os.path.exists('/nobody/writes/this'):\n        pass\npoll()\n"
SLEEPS = READY + "def rest():\n    step, secret = 7, 'not requested'\n    time.sleep(600)\nrest()\n"
WORKS = READY + (
    "def one():\n    sum(range(300000))\ndef two():\n    sum(range(300000))\nwhile True:\n    one()\n    two()\n"
)
SITE = "/opt/venv/lib/python3.11/site-packages/"


@pytest.fixture
def start():
    processes = []

    def run(code):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def sampler(pids, names=(), place_s=1.0, every_s=1.0, budget=100):
    context, agent = Context(), Agent(budget=budget)
    context.shared["processes"] = seen(*pids)
    agent.config.update(watch_locals=list(names), watch_every_s=every_s, watch_place_s=place_s)
    made = WatchedSampler(context, agent)
    made.start()
    return made, context, agent


def until(made, count):
    """Tick until `count` places were posted; their fields."""
    places, deadline = [], time.monotonic() + 120
    while len(places) < count:
        assert time.monotonic() < deadline, places
        places += [fields for kind, fields in made.tick(time.monotonic()) if kind == "place"]
    return places


def test_code_that_polls_stays_in_its_function_although_it_never_sleeps(start):
    made, _, _ = sampler([start(POLLS)])
    last, deadline = until(made, 1)[-1], time.monotonic() + 60
    while last["samples"] < 4:  # it prints `ready` a moment before it polls
        assert time.monotonic() < deadline, last
        last = until(made, 1)[-1]
    assert last["sampled"] - last["path_since"] >= 2_000_000_000
    assert not last["slept"]
    assert "poll" in [frame["function"] for frame in last["frames"]]


def test_code_that_works_changes_its_place(start):
    made, _, _ = sampler([start(WORKS)])
    places = until(made, 6)
    assert len({tuple(frame["line"] for frame in place["frames"]) for place in places}) > 1
    assert min(place["samples"] for place in places[1:]) == 1


def test_rank_that_slept_since_its_last_sample_is_not_read_again(start):
    made, _, _ = sampler([start(SLEEPS)])
    places = until(made, 1)
    while not places[-1]["slept"]:  # it prints `ready` a moment before it sleeps
        assert len(places) < 10
        places += until(made, 1)
    before, last = places[-2:]
    assert last["frames"] == before["frames"]
    assert (last["path_since"], last["samples"]) == (before["path_since"], before["samples"] + 1)
    assert last["sampled"] > before["sampled"]
    assert len(made._costs) == len(places) - 1


def test_one_read_serves_the_place_and_the_watched_variables(start):
    made, context, _ = sampler([start(SLEEPS)], names=["step"])
    places = until(made, 1)
    while not [values for _, values in context.shared["watched"].values() if values]:  # not yet where `step` is
        assert len(places) < 10
        places += until(made, 1)
    [(_, values)] = context.shared["watched"].values()
    assert values == {"step": 7}
    assert len(made._costs) == len(places)
    assert "not requested" not in str(places)


def test_variables_are_read_no_more_often_than_asked_although_places_are(start):
    # Rounds begin at multiples of their length: the next one of this length is years away.
    made, context, _ = sampler([start(POLLS)], names=["step"], place_s=1.0, every_s=1e9)
    until(made, 1)
    [(read, _)] = context.shared["watched"].values()
    until(made, 2)
    assert [at for at, _ in context.shared["watched"].values()] == [read]


def test_nothing_is_read_where_sampling_is_off(start):
    made, context, _ = sampler([start(POLLS)], place_s=0.0)
    assert list(made.tick(0.0)) == []
    assert "watch_cpu_pct" not in context.shared


def test_reads_of_several_ranks_are_spread_over_the_round(start):
    made, _, _ = sampler([start(POLLS), start(POLLS)], place_s=2.0)
    first, second = until(made, 2)
    assert second["sampled"] - first["sampled"] >= 700_000_000


def test_round_beyond_the_budget_is_delayed(start):
    made, _, _ = sampler([start(POLLS)], budget=0.1)
    until(made, 1)
    assert made._due - made._round[0] > 5


def test_bytes_of_data_connections_are_counted_and_control_messages_are_not(start):
    code = READY + (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "a = socket.create_connection(server.getsockname())\nb, _ = server.accept()\n"
        "def send(n):\n    a.sendall(b'x' * n)\n    while n:\n        n -= len(b.recv(65536))\n"
        "for line in sys.stdin:\n    send(int(line)); print('sent', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        process.stdout.readline()
        tracker = PlaceTracker(ProcFs())
        [rank] = seen(process.pid).ranks
        moved = []
        for round_, count in enumerate((0, 100, 100_000, 100_000, 0)):
            process.stdin.write(f"{count}\n")
            assert process.stdout.readline() == "sent\n"
            place, sampled = tracker_place(tracker, rank), (1 << 60) + round_ * TCP_NS  # no later than that
            moved.append(tracker._moved_bytes((rank.pid, rank.start_ticks), place, sampled))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert moved[:2] == [None, None]
    assert min(moved[2:4]) >= 100_000
    assert moved[4] == 0


def tracker_place(tracker, rank):
    key = (rank.pid, rank.start_ticks)
    if key not in tracker._places:
        from gconsole_remote.samplers.places import Place

        tracker._places[key] = Place((), 0, None)
    return tracker._places[key]


def frames(*entries):
    return tuple((function, file, line, False) for function, file, line in entries)


def test_calls_into_the_standard_library_do_not_make_another_place():
    loop = frames(("main", "/job/train.py", 3), ("poll", "/job/train.py", 9))
    deeper = loop + frames(("exists", "/usr/lib/python3.11/genericpath.py", 19))
    assert place_and_path(deeper) == place_and_path(loop)


def test_calls_into_packages_and_other_lines_of_callers_do():
    loop = frames(("main", "/job/train.py", 3), ("poll", "/job/train.py", 9))
    model = loop + frames(("forward", SITE + "torch/nn/modules/linear.py", 114))
    later = frames(("main", "/job/train.py", 4), ("poll", "/job/train.py", 9))
    assert len({place_and_path(each)[1] for each in (loop, model, later)}) == 3


def test_other_line_of_the_same_function_is_another_place_on_the_same_path():
    nine, ten = (frames(("main", "/job/train.py", 3), ("poll", "/job/train.py", line)) for line in (9, 10))
    assert place_and_path(nine)[0] != place_and_path(ten)[0]
    assert place_and_path(nine)[1] == place_and_path(ten)[1]


def test_stack_of_the_standard_library_alone_is_a_place():
    only = frames(("wait", "/usr/lib/python3.11/threading.py", 327))
    assert place_and_path(only)[0] == only
    assert place_and_path(()) == ((), ())


def effect(slowdown, noise=0.0, seconds=600, every=10, rate=100.0):
    made, waits = SamplingEffect(), 0.0
    for second in range(seconds):
        sampled = second % every == 0
        waits += rate * (1 - slowdown * sampled) * (1 + noise * (((second * 7919) % 13) / 6 - 1))
        made.add((1, 1), float(second), int(waits), float(second) if sampled else None)
    return made.lost()


def test_sampling_that_slows_a_job_is_noticed():
    assert effect(0.3) == pytest.approx(0.03, abs=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_sampling_that_costs_nothing_is_not(noise):
    assert effect(0.0, noise) is None


@pytest.mark.parametrize("step_s", [1.3, 2.0, 3.0, 4.0, 5.0, 7.5])
@pytest.mark.parametrize("every", [5, 10])
def test_sampling_of_a_job_whose_steps_take_seconds_costs_nothing(step_s, every):
    for seed in range(10):
        chance, made, waits, ends = random.Random(seed), SamplingEffect(), 0, seed / 10.0
        for second in range(3600):
            waits += chance.randint(0, 4)
            while ends < second + 1:
                waits += chance.randint(20, 60)  # it exchanges gradients
                ends += step_s * chance.uniform(0.98, 1.02)
            made.add((1, 1), float(second), waits, float(second) if second % every == 0 else None)
            assert made.lost() is None, second


def test_effect_is_unknown_after_few_samples_and_for_jobs_that_rarely_wait():
    assert effect(0.5, seconds=100) is None
    assert effect(0.5, rate=1.0) is None


def test_sampling_ends_and_is_reported_once_where_it_slows_a_job(start):
    made, _, agent = sampler([start(POLLS)])
    made._effect.lost = lambda: 0.021
    until(made, 1)
    assert list(made.tick(0.0)) == []
    assert list(made.tick(0.0)) == []
    [(severity, text)] = agent.logged
    assert (severity, text) == (
        "warning",
        "the stacks of ranks are no longer sampled: steps took 2.1 % longer with it",
    )


def test_own_process_without_connections_has_no_figure_of_bytes(start):
    made, _, _ = sampler([start(SLEEPS)])
    assert [place["moved_bytes"] for place in until(made, 2)] == [None, None]


def test_second_that_is_not_over_counts_once_and_has_the_sample_of_the_next_one():
    made = SamplingEffect()
    for second in range(4):
        for _ in range(3):  # the sampler of places ticks more often than that of processes
            made.add((1, 1), float(second), 100 * second, 1.5 if second >= 2 else None)
    assert (made._seconds, made._sampled) == (3, 1)
