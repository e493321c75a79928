"""Ranks of other users, whose environment is not readable, by what is world-readable.

Names, arguments, parents, states and thread names show that a process is a rank, mostly not which one. What is
concluded from a launcher's arguments is labelled as a guess.
"""

import os

from .job_id import job_key, local_key, master_key
from .programs import STARTS_RANKS, LauncherPlan, slurm_step_of
from .rank_variables import Claim, claim_of_argv, number, options_of, rendezvous_of_argv

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .process_facts import ProcessEntry
    from .process_table import ProcessTable
    from .users import Users


class PresumedRank(object):
    """A rank whose environment is not readable; unknown numbers of its claim are None."""

    __slots__ = ("claim", "entry", "job", "reason")

    def __init__(self, entry: "ProcessEntry", claim: "Claim", job: str, reason: str) -> None:
        self.entry = entry
        self.claim = claim
        self.job = job
        self.reason = reason


def presumed_ranks(table: "ProcessTable", below: "set[int]", users: "Users") -> "list[PresumedRank]":
    """The ranks among unreadable processes; `below` are pids that are or were below a rank."""
    presumed = []
    by_launcher: dict[int, tuple[ProcessEntry, list[ProcessEntry]]] = {}
    for entry in table.noted.values():
        if not entry.python or entry.launcher or entry.pid in below or not entry.details.denied:
            continue
        if not table.belongs(entry):
            continue
        launcher = _launcher(table, entry)
        if launcher is not None:
            by_launcher.setdefault(launcher.pid, (launcher, []))[1].append(entry)
        elif _has_rank_traits(entry) and not any(_has_rank_traits(parent) for parent in table.lineage(entry)):
            presumed.append(_lone(table, entry, users))
    for launcher, entries in by_launcher.values():
        presumed.extend(_launched(table, launcher, entries, users))
    return presumed


def _launcher(table: "ProcessTable", entry: "ProcessEntry") -> "ProcessEntry | None":
    """The launcher below which this is the first Python process; None where another stands between, or none above."""
    for parent in table.lineage(entry):
        if parent.launcher in STARTS_RANKS:
            is_batch_shell = parent.launcher == "slurm" and not (parent.facts and slurm_step_of(parent.facts.argv))
            return None if is_batch_shell else parent
        if parent.python and not parent.launcher:
            return None
    return None


def _has_rank_traits(entry: "ProcessEntry") -> bool:
    facts = entry.facts
    return bool(facts and facts.denied and (facts.communicates or claim_of_argv(facts.argv, {})))


def _launched(
    table: "ProcessTable", launcher: "ProcessEntry", entries: "list[ProcessEntry]", users: "Users"
) -> "Iterator[PresumedRank]":
    """The ranks below one launcher. Launchers start local ranks in order, so with all there the order is a guess."""
    plan = LauncherPlan(launcher.facts.argv if launcher.facts else [])
    entries = sorted(entries, key=lambda entry: (entry.start_ticks, entry.pid))
    ordered = plan.local_world_size == len(entries)
    for index, entry in enumerate(entries):
        own_claim = claim_of_argv(entry.details.argv, {})
        claim = own_claim or Claim(None, plan.world_size, launcher.launcher, "launcher argv (guess)")
        claim.launcher = launcher.launcher
        claim.local_world_size = plan.local_world_size
        claim.group_rank = plan.node_rank
        if claim.local_rank is None:
            claim.local_rank = number(options_of(entry.details.argv).get("local_rank"))
        if claim.local_rank is None and ordered:
            claim.local_rank = index
        if claim.rank is None and ordered and plan.node_rank is not None and claim.local_rank is not None:
            claim.rank = plan.node_rank * len(entries) + claim.local_rank
        if plan.local_world_size is None and own_claim is None:
            claim.source = "parent process"
        yield PresumedRank(entry, claim, _job(table, launcher, plan, entry, users), _reason(entry, users))


def _lone(table: "ProcessTable", entry: "ProcessEntry", users: "Users") -> "PresumedRank":
    facts = entry.details
    claim, rendezvous = claim_of_argv(facts.argv, {}), rendezvous_of_argv(facts.argv)
    job = _unnamed(table, entry, users)
    if claim is not None and rendezvous:
        job = job_key(rendezvous, claim, facts.uid, lambda: table.boot_id)
    return PresumedRank(entry, claim or Claim(None, None, None, "thread names"), job, _reason(entry, users))


def _job(
    table: "ProcessTable", launcher: "ProcessEntry", plan: "LauncherPlan", entry: "ProcessEntry", users: "Users"
) -> str:
    """The job's name according to arguments; else one name per user and machine."""
    steps = [launcher] + [parent for parent in table.lineage(launcher) if parent.launcher == "slurm"]
    for parent in steps:
        step = slurm_step_of(parent.facts.argv) if parent.launcher == "slurm" and parent.facts else None
        if step:
            return "slurm-%s:%d" % (step, plan.port) if plan.port else "slurm-" + step
    if plan.address and plan.port and plan.world_size and not plan.run_id:
        return master_key(plan.address, plan.port, plan.world_size, entry.details.uid)
    return _unnamed(table, entry, users)


def _unnamed(table: "ProcessTable", entry: "ProcessEntry", users: "Users") -> str:
    uid = entry.details.uid
    return local_key("unreadable-%s" % (users.name(uid) or uid), "%s %s" % (table.boot_id, uid))


def _reason(entry: "ProcessEntry", users: "Users") -> str:
    """Which file was denied, its owner, and the remedy."""
    facts = entry.details
    mine = os.geteuid()
    what = "/proc/%d/%s" % (entry.pid, facts.denied)
    if facts.uid == mine:
        return (
            "%s was denied although the process is of the same user (uid %d): it has more capabilities than the agent, "
            'is not dumpable, or lives in another user namespace; set run_as = "sudo" for this node' % (what, mine)
        )
    return '%s belongs to %s and was denied to %s: set run_as = "sudo" for this node, or log in as %s' % (
        what,
        _who(users, facts.uid),
        _who(users, mine),
        users.name(facts.uid) or "uid %s" % facts.uid,
    )


def _who(users: "Users", uid: "int | None") -> str:
    name = users.name(uid)
    return "%s (uid %s)" % (name, uid) if name else "uid %s" % uid
