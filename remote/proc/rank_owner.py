"""Finds the process that is the rank among all with the rank's environment variables.

Children of a rank inherit its environment: data loader workers, compile workers, trackers, profilers. The owner of a
rank is the topmost *Python* process of a chain with the same (job, attempt, rank); a shell or numactl above it is a
wrapper. A process that was below an owner never becomes one, even if the owner dies and init adopts it.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import ProcessKey
    from .process_facts import ProcessEntry, ProcessFacts
    from .process_table import ProcessTable
    from .rank_variables import Claim


class Ownership(object):
    """`owners`: pids of ranks. `owner_of`: pid of a process below a rank: pid of that rank. `launchers`: pids whose
    claim is void, because ranks below them have a better one. `stale`: owners of an attempt that has ended."""

    __slots__ = ("launchers", "owner_of", "owners", "stale")

    def __init__(
        self, owners: "set[int]", owner_of: "dict[int, int]", launchers: "set[int]", stale: "set[int]"
    ) -> None:
        self.owners = owners
        self.owner_of = owner_of
        self.launchers = launchers
        self.stale = stale


def _claim(entry: "ProcessEntry") -> "tuple[ProcessFacts, Claim]":
    """The facts and the claim of a claimant."""
    facts = entry.details
    assert facts.claim is not None
    return facts, facts.claim


def find_owners(table: "ProcessTable", former: "dict[ProcessKey, tuple[str, int | None]]") -> "Ownership":
    """Find the owners among all processes of the table. `former`: (job, rank) of processes once below a rank."""
    excluded = _own(table)
    claimants = {
        entry.pid: entry
        for entry in table.noted.values()
        if entry.details.claim
        and not entry.launcher
        and entry.pid not in excluded
        and not _was_below(entry, former.get(entry.key))
        and table.belongs(entry)
    }
    owners = {pid for pid, entry in claimants.items() if _topmost(table, claimants, entry) is entry}
    launchers = _launchers(table, claimants, owners)
    owners -= launchers
    return Ownership(owners, below(table, owners), launchers, _stale(table, owners))


def _own(table: "ProcessTable") -> "set[int]":
    """The agent and those above it: started from a job's shell, they have its variables but are not ranks."""
    agent = table.entries.get(table.own_pid or 0)
    return {agent.pid} | {parent.pid for parent in table.lineage(agent)} if agent is not None else set()


def _was_below(entry: "ProcessEntry", place: "tuple[str, int | None] | None") -> bool:
    """Whether a process claims the rank that it once was below. A process that claims another rank has become one."""
    if place is None:
        return False
    job, rank = place
    facts, claim = _claim(entry)
    return claim.rank == rank and (claim.world_size is None or facts.job == job)


def _topmost(table: "ProcessTable", claimants: "dict[int, ProcessEntry]", entry: "ProcessEntry") -> "ProcessEntry":
    top = entry
    for parent in table.lineage(entry):
        if parent.pid in claimants and _inherited(entry, parent):
            top = parent
    return top


def _inherited(entry: "ProcessEntry", ancestor: "ProcessEntry") -> bool:
    """Whether a process inherited its claim: the same one, or the rest of it in a trimmed environment."""
    (facts, claim), (above, other) = _claim(entry), _claim(ancestor)
    if (claim.rank, claim.attempt) != (other.rank, other.attempt):
        return False
    return claim.world_size is None or (facts.job, claim.world_size) == (above.job, other.world_size)


def _launchers(table: "ProcessTable", claimants: "dict[int, ProcessEntry]", owners: "set[int]") -> "set[int]":
    """Owners that only started ranks: under srun + mp.spawn the parent has SLURM_PROCID, its children have RANK."""
    void = set()
    for pid in owners:
        claim = _claim(claimants[pid])[1]
        launched = False  # whether a launcher is between the two: a nested job
        for parent in table.lineage(claimants[pid]):
            launched = launched or bool(parent.launcher)
            if parent.pid not in owners:
                continue
            above = _claim(parent)[1]
            size, size_above = claim.world_size or 0, above.world_size or 0
            if (above.authority > claim.authority and size >= size_above) or (size > size_above and not launched):
                void.add(parent.pid)
    return void


def below(table: "ProcessTable", owners: "set[int]") -> "dict[int, int]":
    """{pid: pid of the nearest owner above it} of every process that has one."""
    children = table.children() if owners else {}
    owner_of: dict[int, int] = {}
    for owner in owners:
        above = [table.entries[owner]]
        while above:
            parent = above.pop()
            for entry in children.get(parent.pid, ()):
                if entry.pid not in owners and entry.pid not in owner_of and entry.start_ticks >= parent.start_ticks:
                    owner_of[entry.pid] = owner
                    above.append(entry)
    return owner_of


def _stale(table: "ProcessTable", owners: "set[int]") -> "set[int]":
    """Owners left over from an attempt that has been restarted: an older one of the same job, or of the same run where
    the restart moved the master to another port and the old process has lost its launcher."""
    newest: dict[str | None, int] = {}
    newest_of_run: dict[tuple[Any, ...], int] = {}
    for pid in owners:
        facts, claim = _claim(table.entries[pid])
        newest[facts.job] = max(claim.attempt, newest.get(facts.job, 0))
        if facts.run is not None:
            newest_of_run[facts.run] = max(claim.attempt, newest_of_run.get(facts.run, 0))
    stale = set()
    for pid in owners:
        entry = table.entries[pid]
        facts, claim = _claim(entry)
        orphan = not any(parent.launcher for parent in table.lineage(entry))
        if claim.attempt < newest[facts.job] or (
            orphan and facts.run is not None and claim.attempt < newest_of_run[facts.run]
        ):
            stale.add(pid)
    return stale
