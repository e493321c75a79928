"""State of a rank's process, and how its exit is reported."""

import pytest
from fake_proc import torch_rank, watch

ENV = torch_rank(0, 2)


def test_first_tick_already_reports_a_rank_state(proc):
    proc.python(100, env=ENV)

    assert watch(proc).stats[100].state == "idle"


def test_state_of_a_new_rank_is_unknown_until_its_second_tick(proc):
    seen = watch(proc)
    proc.python(100, env=ENV)

    seen.tick()
    assert (seen.stats[100].state, seen.stats[100].cpu_pct) == ("unknown", None)
    seen.tick()
    assert seen.stats[100].state == "idle"


@pytest.mark.parametrize("what", [{"cpu": 7}, {"switches": 3}, {"cpu": 7, "state": "R"}])
def test_cpu_time_or_context_switches_mark_a_rank_as_moving(proc, what):
    proc.python(100, env=ENV)
    seen = watch(proc)

    proc.python(100, env=ENV, **what)
    seen.tick()

    assert seen.stats[100].state == "moving"
    proc.python(100, env=ENV, **what)
    seen.tick()
    assert seen.stats[100].state == "idle"


@pytest.mark.parametrize(
    ("letter", "state"), [("T", "stopped"), ("t", "stopped"), ("D", "uninterruptible"), ("Z", "zombie")]
)
def test_kernel_process_state_determines_the_rank_state(proc, letter, state):
    proc.python(100, env=ENV)
    seen = watch(proc)

    proc.python(100, env=ENV, state=letter, cpu=9)
    seen.tick()

    assert (seen.stats[100].state, seen.stats[100].proc_state) == (state, letter)


def test_rank_whose_main_thread_ended_alone_is_not_a_zombie(proc):
    proc.python(100, env=ENV)
    seen = watch(proc)

    proc.python(100, env=ENV, state="Z", cpu=9, threads=("python", "worker"))
    seen.tick()

    assert seen.stats[100].state == "moving"
    assert seen.ranks[100].status == "present"


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (3 << 8, "exit code 3"), (9, "killed by signal 9 (SIGKILL)"),
     (11 | 0x80, "killed by signal 11 (SIGSEGV), core dumped"), (40, "killed by signal 40 (real-time)")],
)  # fmt: skip
def test_zombie_rank_reports_its_exit_code_or_signal_once(proc, code, text):
    proc.python(100, env=ENV)
    seen = watch(proc)

    proc.python(100, env=ENV, state="Z", exit_code=code)
    seen.tick(1.0)
    assert (seen.ranks[100].status, seen.ranks[100].reason) == ("exited", text)
    assert seen.ranks[100].exit_code == (-(code & 0x7F) or code >> 8)

    proc.end(100)
    records = seen.tick() + seen.tick()
    assert [type(record).__name__ for record in records] == ["Process"], "the exit is reported once"
    assert seen.processes[100].gone
    assert seen.seen.ranks == ()


def test_exit_code_of_another_users_zombie_is_unknown(proc):
    proc.python(50, "/usr/bin/torchrun train.py", uid=77, denied=True)
    proc.python(100, ppid=50, uid=77, denied=True)
    seen = watch(proc)

    proc.python(100, ppid=50, uid=77, denied=True, state="Z", exit_code=0)
    seen.tick()

    assert seen.ranks[100].status == "exited"
    assert "no permission to read its exit code" in seen.ranks[100].reason


def test_ended_rank_is_reported_at_the_next_tick_before_the_next_listing(proc):
    proc.python(100, env=ENV)
    seen = watch(proc)

    proc.end(100)
    seen.tick(0.5)

    assert seen.ranks[100].status == "exited"
    assert seen.ranks[100].reason.startswith("gone")
    assert seen.processes[100].gone


def test_zombie_found_shortly_after_the_first_tick_is_reported(proc):
    env = torch_rank(1, 2)
    proc.python(100, env=env)
    seen = watch(proc)
    seen.said.clear()
    proc.python(100, env=env, state="Z", exit_code=9)
    seen.tick(0.1)

    assert seen.ranks[100].reason == "killed by signal 9 (SIGKILL)"
