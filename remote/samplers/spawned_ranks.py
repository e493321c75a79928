"""Ranks that no environment variable numbers: processes of `torch.multiprocessing.spawn` or `multiprocessing.Process`.

PyTorch's own tutorials set MASTER_ADDR and MASTER_PORT and pass the rank to `init_process_group` as an argument. Its
number is then a variable of the process: of the job's function, or of the wrapper in torch/multiprocessing/spawn.py.
"""

from ..agent.binaries import PY_SPY
from ..proc.procfs import ProcFs
from ..proc.rank_variables import NO_AUTHORITY, Claim, number
from ..stacks import py_spy
from ..stacks.readers import PARSERS, StackReader
from ..stacks.source_lines import is_library
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence

    from ..agent.agent import Agent
    from ..proc.process_table import ProcessTable
    from ..stacks.py_spy import PythonThread
    from .base import Context, Fact, ProcessKey

    Local = tuple[int, str, str]  # (index of the frame, name, value as text)
    Frame = tuple[str, str, int, bool]  # (function, file, line, native)

#: Usual names of the rank and of the number of ranks in functions of a job.
RANKS, SIZES = ("rank", "global_rank"), ("world_size", "size", "nprocs", "num_processes")
#: Of torch's wrapper around the function that `spawn` runs: the index of the process.
WRAPPER, INDEX = "_wrap", "i"
#: Of the parent, which waits in this function: how many processes it has started.
STARTER, COUNT = "start_processes", "nprocs"
PARENT_VARIABLES = frozenset(("%s:%s" % (STARTER, COUNT),))
#: The variables to read in a candidate.
VARIABLES = frozenset(RANKS + SIZES + ("%s:%s" % (WRAPPER, INDEX),))
SOURCE = "stack"
#: Seconds until a process that showed no rank is read again: it may be importing. Doubles each time.
RETRY_S, LONGEST_RETRY_S = 2.0, 120.0
PROCESS_S = 2.0
#: Processes that are read per tick.
MOST = 16


class SpawnedRankSampler(Sampler):
    """Publishes `context.shared["spawned"]`, {(pid, start_ticks): Claim}, from `context.shared["unnumbered"]`."""

    name = "spawned_ranks"

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(SpawnedRankSampler, self).__init__(context)
        self._agent = agent
        self._procfs = ProcFs(context.proc)
        self._claims: "dict[ProcessKey, Claim]" = {}
        self._due: "dict[ProcessKey, tuple[float, float]]" = {}  # key → (when to read it again, pause after that)

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether there are processes to read."""
        return bool(self.context.shared.get("unnumbered"))

    def tick(self, now: float) -> "Iterable[Fact]":
        """Read the processes that are due; yields no records."""
        masters: "dict[ProcessKey, str]" = self.context.shared.get("unnumbered", {})
        for gone in [key for key in self._due if key not in masters]:
            del self._due[gone]
        blobs = self._agent.blobs
        if masters and blobs.path(PY_SPY):
            reader = StackReader(blobs.path(PY_SPY), blobs.problem(PY_SPY), self._procfs, PARSERS)
            for key in sorted(key for key in masters if self._due.get(key, (0.0, 0.0))[0] <= now)[:MOST]:
                self._read(reader, key, masters[key], now)
        return iter(())

    def _read(self, reader: "StackReader", key: "ProcessKey", master: str, now: float) -> None:
        pause_s = self._due.get(key, (0.0, RETRY_S))[1]
        self._due[key] = (now + pause_s, min(LONGEST_RETRY_S, 2 * pause_s))
        try:
            claim = self._claim(reader, key[0], master)
            if claim is None or self._procfs.stat(key[0]).start_ticks != key[1]:
                return  # not in its function yet; or another process by now
        except (py_spy.StackError, OSError, ValueError, IndexError):
            return  # gone, or not readable: then its stack cannot be captured either
        self._claims[key] = claim
        self.context.shared["spawned"] = dict(self._claims)

    def _claim(self, reader: "StackReader", pid: int, master: str) -> "Claim | None":
        """The rank that the variables of a process show. Raises StackError and the errors of /proc."""
        for thread in _main_first(reader.read(pid, PROCESS_S, VARIABLES)[1], pid):
            pair = rank_and_size(thread.frames, thread.locals, is_library)
            index = spawn_index(thread.frames, thread.locals)
            if pair is not None:
                return claim_of_process(pair[0], pair[1], index)
            if index is not None and is_this_machine(master):
                parent = self._procfs.stat(pid).ppid
                for waiting in _main_first(reader.read(parent, PROCESS_S, PARENT_VARIABLES)[1], parent):
                    count = spawn_count(waiting.frames, waiting.locals)
                    if count and index < count:
                        return claim_of_process(index, count, index)
        return None


def _main_first(threads: "list[PythonThread]", pid: int) -> "list[PythonThread]":
    return sorted(threads, key=lambda thread: thread.os_thread_id != pid)


def candidates(table: "ProcessTable", below: "set[int]") -> "dict[ProcessKey, str]":
    """Python processes with a master and without a rank, and the master's address.

    Not those below a rank, nor the parents of others, whose loop over ranks has a variable `rank`, too.
    """
    chosen = [
        entry
        for entry in table.noted.values()
        if entry.python and not entry.launcher and entry.pid not in below and entry.pid != table.own_pid
        and entry.details.claim is None and not entry.details.denied
        and number(entry.details.env.get("MASTER_PORT")) and entry.details.env.get("MASTER_ADDR")
        and table.belongs(entry)
    ]  # fmt: skip
    parents = {parent.pid for entry in chosen for parent in table.lineage(entry)}
    return {entry.key: entry.details.env["MASTER_ADDR"] for entry in chosen if entry.pid not in parents}


def rank_and_size(
    frames: "Sequence[Frame]", variables: "Sequence[Local]", is_library: "Callable[[str], bool]"
) -> "tuple[int, int] | None":
    """(rank, number of ranks) from the outermost function of the job that has both; None if none has."""
    by_frame: "dict[int, dict[str, str]]" = {}
    for index, name, text in variables:
        by_frame.setdefault(index, {})[name] = text
    for index in sorted(by_frame):
        function, file = frames[index][:2] if index < len(frames) else ("", "")
        if function == "<module>" or is_library(file):
            continue
        rank = next((number(by_frame[index][name]) for name in RANKS if name in by_frame[index]), None)
        size = next((number(by_frame[index][name]) for name in SIZES if name in by_frame[index]), None)
        if rank is not None and size and rank < size:
            return rank, size
    return None


def spawn_index(frames: "Sequence[Frame]", variables: "Sequence[Local]") -> "int | None":
    """The index that torch's `spawn` gave to a process; None for another process."""
    for index, name, text in variables:
        if name == INDEX and index < len(frames) and frames[index][0].rsplit(".", 1)[-1] == WRAPPER:
            return number(text)
    return None


def spawn_count(frames: "Sequence[Frame]", variables: "Sequence[Local]") -> "int | None":
    """How many processes a process that is in torch's `spawn` has started; None for another process."""
    for index, name, text in variables:
        if name == COUNT and index < len(frames) and frames[index][0].rsplit(".", 1)[-1] == STARTER:
            return number(text)
    return None


def is_this_machine(address: str) -> bool:
    """Whether a master's address is a loopback one: then all ranks are on one node."""
    return address in ("localhost", "::1") or address.startswith("127.")


def claim_of_process(rank: int, size: "int | None", index: "int | None") -> "Claim":
    """The claim of such a process; `index` is that of `spawn`, which counts the processes of a node."""
    claim = Claim(rank, size, "spawn" if index is not None else "multiprocessing", SOURCE, NO_AUTHORITY)
    claim.local_rank = index
    return claim
