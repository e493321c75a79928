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
class Label:
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
class LabelledJob:
    """One job: a script in `jobs/` on `nodes` nodes of the rig with `per_node` ranks each."""

    name: str
    label: Label
    variant: str = ""  # if a script has several labels
    nodes: int = 2
    per_node: int = 2
    launcher: Launcher = "torchrun"
    absent: frozenset[int] = frozenset()  # ranks that are not started
    watched: str = ""  # how long the job is watched before it is diagnosed; its fault happens in that time
    beside: str = ""  # a healthy script that runs on the same nodes at the same time, started after this one
    needs: tuple[str, ...] = ()  # modules beside torch; without them it is only judged by its recording
    restarts: int = 0  # --max-restarts of torchrun
    live: bool = False  # run in every test run, not only in `make full`

    @property
    def light_torch(self) -> str:
        """How much of torch its ranks need (see light_torch/sitecustomize.py)."""
        if self.needs:
            return ""
        return "ranks" if self.live else "launchers"

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    @property
    def group(self) -> str:
        """The class of jobs that it belongs to, for scores."""
        if "hung" not in self.label.states:
            return "not a hang"
        if self.label.kinds != {"rank_missing"}:
            return min(self.label.kinds)
        return f"late: {min(self.label.classes)}"

    @property
    def labels(self) -> tuple[Label, ...]:
        """One per job, in the order of the jobs' names."""
        return (self.label, MOVING) if self.beside else (self.label,)


def _hung(
    kind: str,
    culprits: Iterable[int],
    *classes: str,
    also: tuple[str, ...] = (),
    may_name: tuple[int, ...] = (),
    decidable: bool = True,
) -> Label:
    return Label(
        frozenset({"hung"}), frozenset({kind, *also}), frozenset(culprits), frozenset(classes),
        frozenset(may_name), decidable,
    )  # fmt: skip


def _behind(culprits: Iterable[int], *classes: str, decidable: bool = True) -> Label:
    return _hung("rank_missing", culprits, *classes, decidable=decidable)


def _slow(culprit: int, cls: str) -> Label:
    return Label(frozenset({"slow"}), frozenset({"straggler"}), frozenset({culprit}), frozenset({cls}))


def _no_culprit(
    *states: str, kinds: tuple[str, ...] = ("none",), may_name: tuple[int, ...] = (), decidable: bool = True
) -> Label:
    return Label(frozenset(states), frozenset(kinds), may_name=frozenset(may_name), decidable=decidable)


MOVING = _no_culprit("moving")
#: Undecidable from outside: blaming any rank is wrong, `moving` or `undecided` is right.
_QUIET = _no_culprit("moving", "undecided", decidable=False)
#: The job ends during the diagnosis.
_ENDED = _no_culprit("no_ranks", "moving", "undecided", decidable=False)
#: Rank 0 is busy while the others wait for it, and makes progress.
_WORKS_FOR_ALL = _no_culprit("moving", "slow", "undecided", may_name=(0,), decidable=False)
#: The others wait for one rank, which makes progress.
_WORKS = _no_culprit("slow")


JOBS: tuple[LabelledJob, ...] = (
    # one rank is in user code, the others wait for it
    LabelledJob("sleeps_in_step", _behind({1}, "sleep"), live=True),
    LabelledJob("loops_in_python", _behind({2}, "compute")),
    LabelledJob("endless_native_call", _behind({3}, "compute")),
    LabelledJob("collects_garbage", _behind({0}, "gc")),
    LabelledJob("holds_the_gil", _behind({1}, "gil_held")),
    LabelledJob("takes_a_lock_twice", _behind({2}, "python_lock")),
    LabelledJob("lock_of_a_thread", _behind({3}, "python_lock", "network_io")),
    LabelledJob("two_locks", _behind({1}, "python_lock")),
    LabelledJob("empty_queue", _behind({1}, "python_lock")),
    LabelledJob("future_result", _behind({2}, "network_io", "python_lock")),
    LabelledJob("joins_a_thread", _behind({3}, "file_io", "python_lock")),
    LabelledJob("reads_a_socket", _behind({1}, "network_io")),
    LabelledJob("http_request", _behind({0}, "network_io")),
    LabelledJob("opens_a_file", _behind({2}, "file_io")),
    LabelledJob("reads_a_file", _behind({1}, "file_io")),
    LabelledJob("full_log_pipe", _behind({3}, "file_io")),
    LabelledJob("file_lock_before_barrier", _hung("wait_cycle", {1, 3}, "file_io", also=("rank_missing",))),
    LabelledJob("runs_a_program", _behind({0}, "subprocess")),
    LabelledJob("runs_a_shell", _behind({3}, "subprocess")),
    LabelledJob("reads_from_a_program", _behind({1}, "subprocess")),
    LabelledJob("compile_lock", _behind({2}, "compile")),
    LabelledJob("import_blocks", _behind({1}, "import", "file_io")),
    LabelledJob("import_lock", _behind({3}, "import")),
    LabelledJob("unattended_prompt", _behind({0}, "input")),
    LabelledJob("breakpoint_left", _behind({2}, "debugger", "input")),
    LabelledJob("signal_handler", _behind({3}, "python_lock")),
    LabelledJob("event_loop", _behind({1}, "network_io", "unknown")),
    LabelledJob("asyncio_in_a_thread", _behind({2}, "network_io")),
    LabelledJob("asyncio_lock", _behind({1}, "network_io")),
    LabelledJob("asyncio_queue", _behind({2}, "python_lock")),
    LabelledJob("gathers_shards", _behind({3}, "network_io")),
    LabelledJob("worker_process", _behind({2}, "python_lock", "subprocess")),
    LabelledJob("teardown_thread", _behind({1}, "teardown", "python_lock")),
    LabelledJob("teardown_hook", _behind({0}, "teardown", "file_io")),
    LabelledJob("many_threads", _behind({1}, "sleep")),
    LabelledJob("odd_names", _behind({1}, "sleep")),
    LabelledJob("tutorial_ddp", _behind({1}, "sleep"), nodes=1, per_node=4, launcher="script"),
    LabelledJob("spawned", _behind({3}, "sleep"), launcher="script"),
    # data and checkpoints
    LabelledJob("dataloader_worker", _behind({1}, "dataloader")),
    LabelledJob("dataloader_worker_stopped", _behind({2}, "dataloader")),
    LabelledJob("dataloader_without_workers", _behind({3}, "dataloader", "file_io")),
    LabelledJob("most_are_behind", _behind({1, 2, 3}, "dataloader")),
    LabelledJob("checkpoint_blocks", _behind({0}, "checkpoint_io")),
    LabelledJob("distributed_checkpoint", _behind({2}, "checkpoint_io", "file_io")),
    LabelledJob("waits_for_a_file", _behind({1, 2, 3}, "sleep")),
    # processes
    LabelledJob("stops_itself", _hung("rank_stopped", {2}, "stopped")),
    LabelledJob("debugger_attached", _hung("rank_stopped", {1}, "debugger", "stopped", also=("rank_missing",))),
    LabelledJob("uninterruptible", _hung("rank_blocked", {1}, "uninterruptible")),
    LabelledJob("killed", _hung("rank_dead", {3}, "dead"), launcher="plain", watched="10s"),
    LabelledJob("left_early", _hung("rank_dead", {2}, "dead", "missing", also=("rank_absent",)), launcher="plain"),
    LabelledJob("zombie", _hung("rank_dead", {1}, "dead"), launcher="script", watched="10s"),
    LabelledJob("absent", _hung("rank_absent", {2}, "missing"), launcher="plain", absent=frozenset({2}), live=True),
    LabelledJob("absent", _hung("rank_absent", {2, 3}, "missing"), "node", launcher="plain", absent=frozenset({2, 3})),
    # groups, the store, different collectives
    LabelledJob("late_for_init", _behind({3}, "file_io")),
    LabelledJob("missed_new_group", _behind({2}, "sleep")),
    LabelledJob("new_group_by_members_only", _no_culprit("undecided", may_name=(2, 3), decidable=False)),
    LabelledJob("store_key", _behind({0}, "subprocess")),
    LabelledJob("late_for_monitored_barrier", _behind({2}, "sleep")),
    LabelledJob("broadcast_runs_ahead", _behind({3}, "sleep")),
    LabelledJob("reduce_runs_ahead", _behind({2}, "sleep")),
    LabelledJob("all_to_all", _behind({2}, "compute")),
    LabelledJob("gathers_objects", _behind({0}, "file_io")),
    LabelledJob("three_of_eight", _behind({1, 4, 6}, "sleep", "file_io", "network_io"), nodes=4),
    LabelledJob("ddp", _behind({1}, "sleep")),
    LabelledJob("ddp_hook", _behind({2}, "sleep")),
    LabelledJob("ddp_busy_threads", _behind({3}, "python_lock")),
    LabelledJob("fully_sharded", _behind({1}, "sleep")),
    LabelledJob("watchdog_aborts", _behind({2}, "sleep", decidable=False), watched="6s"),
    LabelledJob("tensor_and_data_groups", _behind({5}, "sleep"), nodes=4),
    LabelledJob("asynchronous", _behind({2}, "sleep")),
    LabelledJob("asynchronous_and_a_lock", _behind({1}, "python_lock"), live=True),
    LabelledJob("polls_and_sleeps", _behind({1}, "network_io", decidable=False)),
    LabelledJob("polls_its_handle", _behind({3}, "sleep", decidable=False)),
    # all ranks wait in communication
    LabelledJob("pipeline", _behind({0}, "file_io")),
    LabelledJob("pipeline_1f1b", _behind({2}, "compute")),
    LabelledJob("mesh_1f1b", _behind({3}, "file_io")),
    LabelledJob("ring_of_recv", _hung("p2p_cycle", (), "p2p", may_name=(0, 1, 2, 3))),
    LabelledJob("two_in_a_cycle", _hung("p2p_cycle", (), "p2p", may_name=(2, 3))),
    LabelledJob("other_collective", _hung("collective_mismatch", {1}, "collective"), live=True),
    # Stacks do not show the group of a call: this looks like skipped_a_group, where the odd rank is not the culprit.
    LabelledJob("two_groups_in_other_order", _hung("collective_mismatch", {3}, "collective", decidable=False)),
    LabelledJob("ahead_in_barrier", _hung("collective_mismatch", {2}, "collective")),
    LabelledJob("two_camps", _no_culprit("undecided", kinds=("none", "collective_mismatch"))),
    LabelledJob("skipped_a_group", _no_culprit("undecided", may_name=(3,), decidable=False)),
    LabelledJob("external_service", _no_culprit("hung", "undecided", kinds=("external",))),
    LabelledJob("store_key_never_set", _no_culprit("hung", "undecided", kinds=("external",))),
    # ranks wait for each other through sockets, pipes and locks
    LabelledJob("socket_chain", _behind({3}, "sleep"), launcher="plain"),
    LabelledJob("reads_rank_by_rank", _behind({0}, "python_lock"), launcher="plain"),
    LabelledJob("polls_many_sockets", _behind({3}, "sleep"), launcher="plain"),
    LabelledJob("negotiates_in_background", _behind({1}, "sleep"), launcher="plain"),
    LabelledJob("hub_reads_in_threads", _behind({2}, "sleep"), launcher="plain"),
    LabelledJob("polls_a_store", _behind({3}, "python_lock", decidable=False), launcher="plain"),
    LabelledJob("part_of_a_job", _behind({3}, "network_io"), watched="34s"),
    LabelledJob("socket_beside_collective", _behind({3}, "file_io")),
    LabelledJob("lock_of_another_rank", _behind({0}, "network_io")),
    LabelledJob("two_sockets_in_a_circle", _hung("wait_cycle", {0, 1}, "network_io"), launcher="plain"),
    LabelledJob("socket_and_collective_in_a_circle", _hung("wait_cycle", {1}, "network_io")),
    LabelledJob("asks_rollouts", _behind({2}, "network_io"), launcher="plain"),
    LabelledJob("asks_another_rank", _behind({3}, "file_io")),
    LabelledJob("reads_from_its_worker", _behind({2}, "file_io", "subprocess")),
    LabelledJob("pool_of_workers", _behind({2}, "python_lock", "subprocess")),
    LabelledJob("pool_executor", _behind({1}, "subprocess")),
    LabelledJob("engine_in_a_child", _behind({1}, "subprocess")),
    # sockets of a library's I/O threads, and memory
    LabelledJob("zmq_learner", _behind({0}, "file_io"), launcher="plain", needs=("zmq",)),
    LabelledJob("zmq_rollouts", _behind({2}, "sleep"), launcher="plain", needs=("zmq",)),
    LabelledJob("grpc_parameters", _behind({0}, "network_io"), launcher="plain", needs=("grpc",)),
    LabelledJob("shared_memory_ring", _behind({1}, "file_io"), nodes=1, per_node=4, launcher="plain"),
    LabelledJob("controller_and_workers", _behind({2}, "network_io"), launcher="script"),
    LabelledJob("controller_awaits", _behind({1}, "network_io"), launcher="script"),
    LabelledJob("controller_loads", _no_culprit("hung", "undecided", kinds=("external",)), launcher="script"),
    LabelledJob("controller_over_pipes", _behind({1}, "sleep"), nodes=1, per_node=4, launcher="script"),
    LabelledJob("mesh_of_three", _behind({6}, "network_io"), nodes=4),
    # a thread other than the main one trains
    LabelledJob("trains_in_a_thread", _behind({2}, "sleep"), watched="8s"),
    LabelledJob("reduces_in_background", _behind({2}, "file_io", "python_lock")),
    LabelledJob("trains_in_an_executor", _behind({1}, "network_io"), watched="8s"),
    LabelledJob("asyncio_steps", _behind({1}, "file_io"), watched="8s"),
    LabelledJob("engine_and_workers", _behind({3}, "python_lock"), watched="8s"),
    # ranks that poll, and locks of files
    LabelledJob("meets_over_files", _behind({2}, "file_io"), nodes=1, per_node=4, launcher="plain"),
    LabelledJob("meets_over_files_and_trains", MOVING, nodes=1, per_node=4, launcher="plain"),
    LabelledJob("polls_over_http", _behind({3}, "python_lock"), launcher="plain"),
    LabelledJob(
        "polls_for_a_licence",
        _no_culprit("undecided", "hung", kinds=("none", "external"), may_name=(1,)),
        nodes=1,
        per_node=4,
        launcher="plain",
    ),
    LabelledJob(
        "polls_for_an_absent_rank",
        _hung("rank_absent", {2}, "missing"),
        nodes=1,
        per_node=4,
        launcher="plain",
        absent=frozenset({2}),
    ),
    LabelledJob(
        "polls_for_episodes",
        _no_culprit("moving", "slow", "undecided", kinds=("none", "straggler"), may_name=(0,), decidable=False),
        watched="6s",
    ),
    LabelledJob("idle_queue_workers", _no_culprit("moving", "undecided"), launcher="plain"),
    LabelledJob("checks_a_store", _behind({2}, "file_io"), launcher="plain"),
    LabelledJob("checks_a_store_and_trains", MOVING, launcher="plain"),
    LabelledJob("polls_a_thread", _behind({3}, "sleep", "network_io")),
    LabelledJob("polls_its_queue_and_trains", MOVING),
    LabelledJob(
        "asyncio_polls",
        _no_culprit("undecided", "hung", kinds=("none", "external", "rank_missing"), may_name=(1,)),
        nodes=1,
        per_node=4,
        launcher="plain",
    ),
    LabelledJob(
        "barrier_of_processes",
        _hung("wait_cycle", {2}, "python_lock", also=("rank_missing",)),
        nodes=1,
        per_node=4,
        launcher="script",
    ),
    LabelledJob("sqlite_lock", _hung("wait_cycle", {1}, "sleep", "file_io", also=("rank_missing",))),
    LabelledJob("sqlite_writes", MOVING),
    LabelledJob("two_file_locks", _hung("wait_cycle", {0, 1}, "file_io", also=("rank_missing",))),
    # waits that end by themselves
    LabelledJob("backs_off", _no_culprit("moving", "slow", "undecided", decidable=False), watched="6s"),
    LabelledJob("waits_with_a_limit", _no_culprit("moving", "slow", "undecided", decidable=False), watched="6s"),
    LabelledJob(
        "joins_a_thread_with_a_limit", _no_culprit("moving", "slow", "undecided", decidable=False), watched="6s"
    ),
    # child processes, threads and executors
    LabelledJob("becomes_a_program", _hung("rank_missing", {1}, "sleep", "subprocess", "unknown", also=("rank_dead",))),
    LabelledJob("waits_for_futures", _behind({2}, "network_io", "python_lock")),
    LabelledJob("asyncio_program", _behind({2}, "subprocess")),
    LabelledJob("queue_of_a_manager", _behind({1}, "python_lock", "network_io", "subprocess")),
    LabelledJob("full_pipe_to_a_child", _behind({0}, "file_io", "subprocess")),
    LabelledJob("loader_worker_and_lock", _behind({3}, "dataloader", "file_io")),
    LabelledJob("saves_behind", _behind({1}, "checkpoint_io", "file_io", "python_lock")),
    LabelledJob("two_are_stopped", _hung("rank_stopped", {2, 3}, "stopped")),
    LabelledJob("jax_host_callback", _behind({0}, "file_io"), launcher="plain", needs=("jax",), watched="8s"),
    LabelledJob("pool_trains", MOVING),
    LabelledJob("futures_train", MOVING),
    LabelledJob("child_tokenizes", MOVING),
    LabelledJob("evaluates_in_a_pool", _WORKS_FOR_ALL, watched="6s"),
    LabelledJob("throttled_by_its_cgroup", _no_culprit("moving", "slow", kinds=("none", "straggler"), may_name=(2,))),
    LabelledJob("mpi_ring_trains", MOVING, nodes=1, per_node=4, launcher="script", needs=("mpi4py",)),
    # other frameworks
    LabelledJob("jax_reads_a_file", _behind({1}, "file_io"), launcher="plain", needs=("jax",), watched="8s"),
    LabelledJob("jax_trains", MOVING, launcher="plain", needs=("jax",)),
    LabelledJob(
        "mpi_loads_a_mesh",
        _behind({2}, "file_io"),
        nodes=1,
        per_node=4,
        launcher="script",
        needs=("mpi4py",),
        watched="8s",
    ),
    LabelledJob("mpi_trains", MOVING, nodes=1, per_node=4, launcher="script", needs=("mpi4py",)),
    LabelledJob(
        "ray_waits_for_a_lease",
        _behind({2}, "sleep"),
        nodes=1,
        per_node=4,
        launcher="script",
        needs=("ray.train",),
        watched="8s",
    ),
    LabelledJob("ray_trains", MOVING, nodes=1, per_node=4, launcher="script", needs=("ray.train",)),
    LabelledJob("lightning_pushes_metrics", _behind({1}, "network_io"), needs=("lightning",), watched="8s"),
    LabelledJob("lightning_trains", MOVING, needs=("lightning",)),
    LabelledJob("accelerate_loader", _behind({0}, "dataloader"), needs=("accelerate",), watched="8s"),
    LabelledJob("accelerate_trains", MOVING, needs=("accelerate",)),
    LabelledJob("deepspeed_offload", _behind({1}, "file_io"), needs=("deepspeed",), watched="8s"),
    # healthy jobs
    LabelledJob("threads_train", MOVING),
    LabelledJob("asyncio_trains", MOVING),
    LabelledJob("negotiates_and_trains", MOVING, launcher="plain"),
    LabelledJob("engine_schedules", MOVING),
    LabelledJob("rollouts_from_a_child", MOVING),
    LabelledJob("pipeline_runs", MOVING),
    LabelledJob("saves_in_a_thread", MOVING),
    LabelledJob("starts_slowly", _no_culprit("moving", "slow", "undecided", may_name=(3,), decidable=False)),
    LabelledJob(
        "compiles_at_length",
        Label(frozenset({"slow"}), frozenset({"rank_missing"}), frozenset({1}), frozenset({"compile"})),
    ),
    LabelledJob("sockets_in_turn", _QUIET, launcher="plain"),
    LabelledJob("compiles_everywhere", _no_culprit("moving", "slow", "undecided", decidable=False)),
    LabelledJob("uneven_last_batch", _no_culprit("moving", "slow", may_name=(0, 1, 2, 3), decidable=False)),
    LabelledJob("joins_uneven_inputs", MOVING),
    LabelledJob("slow_for_all", _no_culprit("moving", "slow", "undecided", decidable=False)),
    LabelledJob("uneven_work", _no_culprit("moving", "slow", may_name=(0, 1, 2, 3), decidable=False)),
    LabelledJob("asks_every_step", _no_culprit("moving", "slow", may_name=(0,), decidable=False)),
    LabelledJob("idle_service", _no_culprit("moving", "undecided"), launcher="plain"),
    LabelledJob("builds_kernels", _WORKS),
    LabelledJob(
        "live_stream",
        _no_culprit("moving", "slow", "undecided", kinds=("none", "straggler"), may_name=(3,), decidable=False),
        watched="6s",
    ),
    LabelledJob(
        "compiles_in_threads",
        Label(frozenset({"slow"}), frozenset({"rank_missing"}), frozenset({1}), frozenset({"compile"})),
        needs=("jax",),
    ),
    LabelledJob("downloads_a_shard", _WORKS),
    LabelledJob("reads_in_pieces", _WORKS),
    LabelledJob("computes_for_a_socket", _WORKS),
    LabelledJob("moving", MOVING),
    LabelledJob("restart_under_way", _ENDED, nodes=1, per_node=4, restarts=99, watched="8s"),
    LabelledJob("restarts", _no_culprit("moving", "undecided", "no_ranks", decidable=False), restarts=9),
    LabelledJob("long_steps", _QUIET),
    LabelledJob(
        "pauses_between_tries",
        _no_culprit("moving", "slow", "undecided", kinds=("none", "straggler"), may_name=(1,), decidable=False),
        watched="6s",
    ),
    LabelledJob(
        "asyncio_pauses",
        _no_culprit("moving", "slow", "undecided", kinds=("none", "straggler"), may_name=(1,), decidable=False),
        watched="6s",
    ),
    LabelledJob("idle_between_epochs", _QUIET),
    LabelledJob("evaluates_meanwhile", _WORKS_FOR_ALL),
    LabelledJob("checkpoint_moves", _WORKS_FOR_ALL),
    LabelledJob("launcher_stopped", MOVING),
    LabelledJob("done", _ENDED),
    LabelledJob("other_shape", _ENDED),
    LabelledJob("sleeps_in_step", _behind({1}, "sleep"), "beside", beside="moving"),
    LabelledJob(
        "augments_for_seconds", _no_culprit("moving", "slow", "undecided", kinds=("none", "straggler"), may_name=(1,))
    ),
    LabelledJob("straggler", _slow(1, "sleep")),
    LabelledJob("computing_straggler", _slow(2, "compute")),
    LabelledJob("straggler_sometimes", _no_culprit("moving", "slow", may_name=(3,), decidable=False)),
    LabelledJob("stragglers_in_turn", _no_culprit("moving")),
)
