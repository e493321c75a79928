"""The expected verdict of each labelled job: the kind, the ranks to be named and words of the first cause.

A label was written from the script, before any verdict on it was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RECORDINGS = Path(__file__).parent / "recordings"

#: `torchrun`: the launcher and the ranks of a node share one log. `redirected`: torchrun writes files for each rank.
#: `pipe`, `tee`: torchrun's output is a pipe. `plain`: each rank is
#: started with a launcher's variables, and has its own log. `script`: the script starts the ranks itself. `accelerate`.
Launcher = Literal["torchrun", "redirected", "pipe", "tee", "plain", "script", "accelerate"]


@dataclass(frozen=True)
class Label:
    """What a verdict must contain; without `kinds` there must be none.

    `culprits` are the ranks to be named, `may_name` ranks that may be named as well. With `is_common` all of them fail
    for the same reason, so that naming none of them is right, too; with `is_any` naming some of them is; with
    `node`, naming this node is. `says`: words of the verdict. On a job that is not decidable from outside only a wrong
    name is wrong.
    """

    kinds: frozenset[str] = frozenset()
    culprits: frozenset[int] = frozenset()
    says: tuple[str, ...] = ()
    may_name: frozenset[int] = frozenset()
    is_common: bool = False
    is_any: bool = False
    decidable: bool = True
    repeats: bool | None = None
    node: str = ""
    is_error: bool = True  # False: ended on purpose, a warning


@dataclass(frozen=True)
class LabelledJob:
    """One job: a script in `jobs/` on `nodes` nodes of the rig with `per_node` ranks each."""

    name: str
    label: Label
    variant: str = ""
    nodes: int = 2
    per_node: int = 2
    launcher: Launcher = "torchrun"
    act: str = ""  # what is done to the job from outside when all ranks are ready (`live_jobs.ACTS`)
    lasts_s: float = 0.0  # it does not end: it is watched for this long after all ranks are ready
    restarts: int = 0  # of torchrun; one node
    earlier: frozenset[int] = frozenset()  # ranks that may be named while it is restarted
    timeout_s: int = 60  # of collectives
    needs: str = ""  # a module beside torch
    program: str = ""  # a program beside Python
    whole_torch: bool = False  # its ranks need all of torch
    live: bool = False  # runs in `make test`, too

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name


def _crash(
    kind: str, culprits: Iterable[int], *says: str, also: tuple[str, ...] = (), may_name: tuple[int, ...] = (),
    is_common: bool = False, is_any: bool = False, decidable: bool = True, repeats: bool | None = None, node: str = "",
) -> Label:  # fmt: skip
    kinds = frozenset({kind, *also})
    return Label(kinds, frozenset(culprits), says, frozenset(may_name), is_common, is_any, decidable, repeats, node)


ALL = range(4)
#: The job ends well.
WELL = Label()


def _ended_by(*says: str) -> Label:
    """The job is ended on purpose."""
    return Label(frozenset({"launcher"}), says=says, is_error=False)


# fmt: off
JOBS: tuple[LabelledJob, ...] = (
    LabelledJob("raises", _crash("exception", [2], "ValueError", "raises.py"), variant="shared_log", live=True),
    LabelledJob(
        "raises",
        _crash("exception", [2], "ValueError", "raises.py"),
        variant="redirected",
        launcher="redirected",
        live=True,
    ),
    LabelledJob("raises", _crash("exception", [2], decidable=False), variant="pipe", launcher="pipe"),
    LabelledJob("raises", _crash("exception", [2], "ValueError"), variant="tee", launcher="tee"),
    LabelledJob("raises", _crash("exception", [2], "ValueError"), variant="plain", launcher="plain", lasts_s=8),
    LabelledJob("chained", _crash("exception", [1], "ConfigurationError", "chained.py")),
    LabelledJob(
        "file_is_missing", _crash("exception", ALL, "FileNotFoundError", is_common=True), launcher="redirected"
    ),
    LabelledJob("segfault", _crash("signalled", [3], "SIGSEGV")),
    LabelledJob("segfault_with_handler", _crash("signalled", [0], "egmentation fault"), launcher="redirected"),
    LabelledJob("aborts", _crash("signalled", [1], "bad_alloc", also=("exception",)), launcher="redirected"),
    LabelledJob("trains", _crash("signalled", [2], "SIGKILL"), variant="killed", act="kill_rank_2", live=True),
    LabelledJob("trains", _crash("oom_killed", [1]), variant="no_memory", act="kill_rank_1_for_memory"),
    LabelledJob("cuda_memory", _crash("exception", [3], "OutOfMemoryError"), launcher="redirected"),
    LabelledJob("cuda_assert", _crash("exception", [0], "device-side assert"), launcher="redirected"),
    LabelledJob("worker_asserts", _crash("exception", [2], "AssertionError"), launcher="redirected", whole_torch=True),
    LabelledJob("disk_full", _crash("exception", [1], "No space left on device", "disk_full.py")),
    LabelledJob(
        "trains",
        _crash("node_lost", [2, 3], is_common=True, node="node2"),
        variant="node_lost",
        act="lose_node_2",
        launcher="plain",
        lasts_s=50,
    ),
    LabelledJob("port_taken", _crash("exception", [0], "EADDRINUSE", may_name=()), launcher="plain", lasts_s=14),
    LabelledJob("import_fails", _crash("exception", [2, 3], "ModuleNotFoundError", is_any=True, node="node2"),
                lasts_s=1),
    LabelledJob("versions_differ", _crash("exception", ALL, "version mismatch", is_common=True), launcher="redirected"),
    LabelledJob("leaves_early", _crash("unknown", [1], also=("exception", "signalled")), launcher="redirected"),
    LabelledJob("exits_3", _crash("exception", [2], also=("unknown",)), launcher="redirected"),
    LabelledJob("nan_guard", _crash("exception", [0], "FloatingPointError", "1217")),
    LabelledJob(
        "nan_guard_everywhere", _crash("exception", ALL, "FloatingPointError", is_common=True), launcher="redirected"
    ),
    LabelledJob(
        "rank_does_not_join",
        _crash("exception", [3], decidable=False, also=("unknown",)),
        launcher="redirected",
        lasts_s=1,
    ),
    LabelledJob(
        "trains",
        _ended_by("SIGTERM to torchrun on node2", "4 ranks"),
        variant="launcher_terminated",
        act="terminate_launcher_1",
    ),
    LabelledJob("trains", _ended_by("SIGTERM to torchrun on node1, node2"), variant="terminated", act="terminate_all"),
    LabelledJob(
        "trains", _ended_by("SIGINT to torchrun on node1, node2"), variant="interrupted", act="interrupt_launchers"
    ),
    LabelledJob(
        "trains",
        _ended_by("SIGINT to torchrun on node1", "3 ranks"),
        variant="ctrl_c",
        nodes=1,
        per_node=3,
        act="interrupt_launcher",
    ),
    LabelledJob(
        "trains",
        _ended_by("SIGINT to its ranks", "3 ranks"),
        variant="ctrl_c_unread",
        nodes=1,
        per_node=3,
        launcher="pipe",
        act="interrupt_launcher",
    ),
    LabelledJob(
        "trains",
        _crash("launcher", [], "SIGKILL to torchrun on node1", "3 ranks still run"),
        variant="launcher_killed",
        nodes=1,
        per_node=3,
        act="kill_launcher",
        lasts_s=12,
    ),
    LabelledJob(
        "trains",
        _crash("signalled", [2], "SIGTERM"),
        variant="rank_terminated",
        nodes=1,
        per_node=3,
        act="terminate_rank_2",
    ),
    LabelledJob(
        "fails_each_time",
        _crash("exception", [1], "ValueError", repeats=True),
        nodes=1,
        per_node=3,
        restarts=2,
    ),
    LabelledJob(
        "fails_differently",
        _crash("exception", [2], "KeyError", repeats=False),
        nodes=1,
        per_node=3,
        restarts=1,
        earlier=frozenset({1}),
    ),
    LabelledJob(
        "watchdog",
        _crash("unknown", [], may_name=(1,), also=("signalled", "exception"), decidable=False),
        launcher="redirected",
    ),
    LabelledJob("closes_first", _crash("exception", [3], "ZeroDivisionError"), launcher="plain", lasts_s=8),
    LabelledJob("thread_raises", _crash("exception", [2], "OverflowError"), launcher="redirected"),
    LabelledJob(
        "backward_raises", _crash("exception", [1], "ArithmeticError"), launcher="redirected", whole_torch=True
    ),
    LabelledJob("recurses", _crash("exception", [0], "RecursionError"), launcher="redirected"),
    LabelledJob("memory_limit", _crash("exception", [2], "MemoryError", also=("oom_killed",))),
    LabelledJob("spawned", _crash("exception", [1], "IndexError"), nodes=1, per_node=3, launcher="script"),
    LabelledJob("records_its_error", _crash("exception", [1], "LookupError"), launcher="pipe"),
    LabelledJob(
        "worker_killed",
        _crash("exception", [0], "DataLoader worker", also=("signalled", "oom_killed")),
        launcher="redirected",
        whole_torch=True,
    ),
    LabelledJob(
        "monitored_barrier", _crash("exception", [2], also=("unknown",), decidable=False), launcher="redirected"
    ),
    LabelledJob("prefixed", _crash("exception", [3], "AttributeError", "prefixed.py")),
    LabelledJob(
        "accelerates",
        _crash("exception", [1], "PermissionError"),
        nodes=1,
        per_node=2,
        launcher="accelerate",
        needs="accelerate",
        whole_torch=True,
    ),
    LabelledJob("execs", _crash("exception", [1], "ValueError", "execs.py")),
    LabelledJob("bus_error", _crash("signalled", [2], "SIGBUS")),
    LabelledJob("nan_exit", _crash("exception", [3], "nan", also=("unknown",)), launcher="redirected"),
    LabelledJob("own_launcher", _crash("exception", [1], "TypeError"), nodes=1, per_node=3, launcher="script"),
    LabelledJob("exception_group", _crash("exception", [0], "LookupError", also=("unknown",))),
    LabelledJob("cpu_limit", _crash("signalled", [2], "SIGXCPU"), launcher="redirected"),
    LabelledJob(
        "worker_segfault",
        _crash("exception", [2], "DataLoader worker", also=("signalled",)),
        launcher="redirected",
        whole_torch=True,
    ),
    LabelledJob("double_free", _crash("signalled", [1], "SIGABRT"), launcher="redirected"),
    LabelledJob("broken_pool", _crash("exception", [3], "BrokenProcessPool")),
    LabelledJob("json_logs", _crash("exception", [2], "KeyError"), launcher="redirected"),
    LabelledJob(
        "silent_hook", _crash("exception", [2], also=("unknown",), decidable=False), launcher="redirected"
    ),
    LabelledJob(
        "mpi_raises", _crash("exception", [1], "OverflowError"), nodes=1, per_node=3, launcher="script",
        program="mpirun",
    ),
    LabelledJob("ends_well", WELL, variant="shared_log", live=True),
    LabelledJob("ends_well", WELL, variant="plain", launcher="plain"),
    LabelledJob("saves_at_the_end", WELL, launcher="redirected"),
    LabelledJob("handles_errors", WELL, launcher="redirected"),
    LabelledJob("loads_well", WELL, whole_torch=True),
    LabelledJob("restarts_well", WELL, nodes=1, per_node=3, restarts=2),
    LabelledJob("restarts_and_trains", WELL, nodes=1, per_node=3, restarts=2, lasts_s=8),
    LabelledJob("is_preempted", WELL, launcher="plain", act="terminate_ranks"),
    LabelledJob("child_fails", WELL),
)
# fmt: on
