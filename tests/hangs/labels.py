"""The expected verdict of each labelled job: the culprit and the cause, or that it cannot be decided from outside.

A label was written from the script, before any verdict on it was seen. If two classes apply, or the field has two
terms for one state, the label has both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

#: `torchrun` starts an agent per node. `plain` starts each rank with a launcher's variables and without an agent, which
#: does not kill other ranks when one dies. `script` starts the script once per node, and that starts the ranks.
Launcher = Literal["torchrun", "plain", "script"]


@dataclass(frozen=True)
class Truth:
    """What a verdict must contain. On a decidable job all of it; on another one it must not blame any rank.

    `states`, `kinds` and `classes` are accepted values. `culprits` are the ranks to be blamed. `may_name` are ranks
    that may be blamed as well (the whole cycle of a deadlock, the true culprit where `undecided` is right).
    """

    states: frozenset[str]
    kinds: frozenset[str]
    culprits: frozenset[int] = frozenset()
    classes: frozenset[str] = frozenset()
    may_name: frozenset[int] = frozenset()
    decidable: bool = True


@dataclass(frozen=True)
class Labelled:
    """One job: a script in `jobs/` on `nodes` nodes of the rig with `per_node` ranks each."""

    name: str
    truth: Truth
    variant: str = ""  # if a script has several labels
    nodes: int = 2
    per_node: int = 2
    launcher: Launcher = "torchrun"
    absent: frozenset[int] = frozenset()  # ranks that are not started
    watched: str = ""  # how long the job is watched before it is diagnosed; its fault happens in that time
    beside: str = ""  # a healthy script that runs on the same nodes at the same time, started after this one
    live: bool = False  # run in every test run, not only in `make full`

    @property
    def light_torch(self) -> str:
        """How much of torch its ranks need (see light_torch/sitecustomize.py)."""
        return "ranks" if self.live else "launchers"

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    @property
    def truths(self) -> tuple[Truth, ...]:
        """One per job, in the order of the jobs' names."""
        return (self.truth, MOVING) if self.beside else (self.truth,)


def _hung(
    kind: str,
    culprits: Iterable[int],
    *classes: str,
    also: tuple[str, ...] = (),
    may_name: tuple[int, ...] = (),
    decidable: bool = True,
) -> Truth:
    return Truth(
        frozenset({"hung"}), frozenset({kind, *also}), frozenset(culprits), frozenset(classes),
        frozenset(may_name), decidable,
    )  # fmt: skip


def _behind(culprits: Iterable[int], *classes: str, decidable: bool = True) -> Truth:
    return _hung("rank_missing", culprits, *classes, decidable=decidable)


def _slow(culprit: int, cls: str) -> Truth:
    return Truth(frozenset({"slow"}), frozenset({"straggler"}), frozenset({culprit}), frozenset({cls}))


def _no_culprit(
    *states: str, kinds: tuple[str, ...] = ("none",), may_name: tuple[int, ...] = (), decidable: bool = True
) -> Truth:
    return Truth(frozenset(states), frozenset(kinds), may_name=frozenset(may_name), decidable=decidable)


MOVING = _no_culprit("moving")
#: Undecidable from outside: blaming any rank is wrong, `moving` or `undecided` is right.
_QUIET = _no_culprit("moving", "undecided", decidable=False)
#: The job ends during the diagnosis.
_ENDED = _no_culprit("no_ranks", "moving", "undecided", decidable=False)
#: Rank 0 is busy while the others wait for it, and makes progress.
_WORKS_FOR_ALL = _no_culprit("moving", "slow", "undecided", may_name=(0,), decidable=False)

JOBS: tuple[Labelled, ...] = (
    # one rank is in user code, the others wait for it
    Labelled("sleeps_in_step", _behind({1}, "sleep"), live=True),
    Labelled("loops_in_python", _behind({2}, "compute")),
    Labelled("endless_native_call", _behind({3}, "compute")),
    Labelled("collects_garbage", _behind({0}, "gc")),
    Labelled("holds_the_gil", _behind({1}, "gil_held")),
    Labelled("takes_a_lock_twice", _behind({2}, "python_lock")),
    Labelled("lock_of_a_thread", _behind({3}, "python_lock", "network_io")),
    Labelled("two_locks", _behind({1}, "python_lock")),
    Labelled("empty_queue", _behind({1}, "python_lock")),
    Labelled("future_result", _behind({2}, "network_io", "python_lock")),
    Labelled("joins_a_thread", _behind({3}, "file_io", "python_lock")),
    Labelled("reads_a_socket", _behind({1}, "network_io")),
    Labelled("http_request", _behind({0}, "network_io")),
    Labelled("opens_a_file", _behind({2}, "file_io")),
    Labelled("reads_a_file", _behind({1}, "file_io")),
    Labelled("full_log_pipe", _behind({3}, "file_io")),
    Labelled("file_lock_before_barrier", _behind({1, 3}, "file_io")),
    Labelled("runs_a_program", _behind({0}, "subprocess")),
    Labelled("runs_a_shell", _behind({3}, "subprocess")),
    Labelled("reads_from_a_program", _behind({1}, "subprocess")),
    Labelled("compile_lock", _behind({2}, "compile")),
    Labelled("import_blocks", _behind({1}, "import", "file_io")),
    Labelled("import_lock", _behind({3}, "import")),
    Labelled("unattended_prompt", _behind({0}, "input")),
    Labelled("breakpoint_left", _behind({2}, "debugger", "input")),
    Labelled("signal_handler", _behind({3}, "python_lock")),
    Labelled("event_loop", _behind({1}, "network_io", "unknown")),
    Labelled("worker_process", _behind({2}, "python_lock", "subprocess")),
    Labelled("teardown_thread", _behind({1}, "teardown", "python_lock")),
    Labelled("teardown_hook", _behind({0}, "teardown", "file_io")),
    Labelled("many_threads", _behind({1}, "sleep")),
    Labelled("odd_names", _behind({1}, "sleep")),
    Labelled("spawned", _behind({3}, "sleep"), launcher="script"),
    # data and checkpoints
    Labelled("dataloader_worker", _behind({1}, "dataloader")),
    Labelled("dataloader_worker_stopped", _behind({2}, "dataloader")),
    Labelled("dataloader_without_workers", _behind({3}, "dataloader", "file_io")),
    Labelled("most_are_behind", _behind({1, 2, 3}, "dataloader")),
    Labelled("checkpoint_blocks", _behind({0}, "checkpoint_io")),
    Labelled("distributed_checkpoint", _behind({2}, "checkpoint_io", "file_io")),
    Labelled("waits_for_a_file", _behind({1, 2, 3}, "sleep")),
    # processes
    Labelled("stops_itself", _hung("rank_stopped", {2}, "stopped")),
    Labelled("debugger_attached", _hung("rank_stopped", {1}, "debugger", "stopped", also=("rank_missing",))),
    Labelled("uninterruptible", _hung("rank_blocked", {1}, "uninterruptible")),
    Labelled("killed", _hung("rank_dead", {3}, "dead"), launcher="plain", watched="10s"),
    Labelled("left_early", _hung("rank_dead", {2}, "dead", "missing", also=("rank_absent",)), launcher="plain"),
    Labelled("zombie", _hung("rank_dead", {1}, "dead"), launcher="script", watched="10s"),
    Labelled("absent", _hung("rank_absent", {2}, "missing"), launcher="plain", absent=frozenset({2}), live=True),
    Labelled("absent", _hung("rank_absent", {2, 3}, "missing"), "node", launcher="plain", absent=frozenset({2, 3})),
    # groups, the store, different collectives
    Labelled("late_for_init", _behind({3}, "file_io")),
    Labelled("missed_new_group", _behind({2}, "sleep")),
    Labelled("new_group_by_members_only", _no_culprit("undecided", may_name=(2, 3), decidable=False)),
    Labelled("store_key", _behind({0}, "subprocess")),
    Labelled("late_for_monitored_barrier", _behind({2}, "sleep")),
    Labelled("broadcast_runs_ahead", _behind({3}, "sleep")),
    Labelled("reduce_runs_ahead", _behind({2}, "sleep")),
    Labelled("all_to_all", _behind({2}, "compute")),
    Labelled("gathers_objects", _behind({0}, "file_io")),
    Labelled("three_of_eight", _behind({1, 4, 6}, "sleep", "file_io", "network_io"), nodes=4),
    Labelled("ddp", _behind({1}, "sleep")),
    Labelled("ddp_hook", _behind({2}, "sleep")),
    Labelled("ddp_busy_threads", _behind({3}, "python_lock")),
    Labelled("fully_sharded", _behind({1}, "sleep")),
    Labelled("tensor_and_data_groups", _behind({5}, "sleep"), nodes=4),
    Labelled("asynchronous", _behind({2}, "sleep")),
    Labelled("asynchronous_and_a_lock", _behind({1}, "python_lock"), live=True),
    Labelled("polls_and_sleeps", _behind({1}, "network_io", decidable=False)),
    Labelled("polls_its_handle", _behind({3}, "sleep", decidable=False)),
    # all ranks wait in communication
    Labelled("pipeline", _behind({0}, "file_io")),
    Labelled("pipeline_1f1b", _behind({2}, "compute")),
    Labelled("ring_of_recv", _hung("p2p_cycle", (), "p2p", may_name=(0, 1, 2, 3))),
    Labelled("two_in_a_cycle", _hung("p2p_cycle", (), "p2p", may_name=(2, 3))),
    Labelled("other_collective", _hung("collective_mismatch", {1}, "collective"), live=True),
    # Stacks do not show the group of a call: this looks like skipped_a_group, where the odd rank is not the culprit.
    Labelled("two_groups_in_other_order", _hung("collective_mismatch", {3}, "collective", decidable=False)),
    Labelled("ahead_in_barrier", _hung("collective_mismatch", {2}, "collective")),
    Labelled("two_camps", _no_culprit("undecided", kinds=("none", "collective_mismatch"))),
    Labelled("skipped_a_group", _no_culprit("undecided", may_name=(3,), decidable=False)),
    Labelled("external_service", _no_culprit("hung", "undecided", kinds=("external",))),
    Labelled("store_key_never_set", _no_culprit("hung", "undecided", kinds=("external",))),
    # healthy jobs
    Labelled("moving", MOVING),
    Labelled("long_steps", _QUIET),
    Labelled("idle_between_epochs", _QUIET),
    Labelled("evaluates_meanwhile", _WORKS_FOR_ALL),
    Labelled("checkpoint_moves", _WORKS_FOR_ALL),
    Labelled("launcher_stopped", MOVING),
    Labelled("done", _ENDED),
    Labelled("other_shape", _ENDED),
    Labelled("sleeps_in_step", _behind({1}, "sleep"), "beside", beside="moving"),
    Labelled("straggler", _slow(1, "sleep")),
    Labelled("computing_straggler", _slow(2, "compute")),
    Labelled("straggler_sometimes", _no_culprit("moving", "slow", may_name=(3,), decidable=False)),
    Labelled("stragglers_in_turn", _no_culprit("moving")),
)
