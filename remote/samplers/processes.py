"""`process`, `rank` and `rank_stat` records: which processes and ranks there are, and what each rank does."""

import os
import time

from ..clocks import stamps
from ..comms.nccl_version import NcclVersions
from ..proc.activity import ActivityTracker, ProcessGone, describe_code, describe_exit, exit_code_of
from ..proc.exits import ExitWatch
from ..proc.framework_parts import framework_part
from ..proc.last_run import LastRuns
from ..proc.process_reader import ProcessReader
from ..proc.process_table import ProcessTable
from ..proc.procfs import ProcFs, command_line, printable, read_text
from ..proc.programs import WAITS_FOR_NODES, child_role
from ..proc.rank_owner import below, find_owners
from ..proc.rank_variables import VARIABLES, gpu_of
from ..proc.unclaimed import UnclaimedProcesses
from ..proc.unreadable_ranks import presumed_ranks
from ..proc.users import Users
from .base import Sampler
from .locals import step_of
from .process_snapshot import ChildRef, ProcessSnapshot, RankRef, WriterRef
from .spawned_ranks import candidates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.process_facts import ProcessEntry
    from ..proc.rank_owner import Ownership
    from ..proc.rank_variables import Claim
    from ..proc.unreadable_ranks import PresumedRank
    from .base import Context, Fact, Fields, ProcessKey


#: Seconds between the two samples of the first tick: activity needs two samples.
FIRST_SAMPLE_S = 0.2
#: The kernel's letters of a thread that does not run.
ASLEEP = "SDTt"


class ProcessSampler(Sampler):
    """`process` and `rank` records on change, `rank_stat` of each rank at every tick, from /proc alone."""

    name = "processes"

    def __init__(self, context: "Context") -> None:
        super(ProcessSampler, self).__init__(context)
        self.procfs = ProcFs(context.proc)
        self.users = Users()
        self.table: ProcessTable = None  # type: ignore[assignment]  # set by start()
        self._processes: dict[ProcessKey, Fields] = {}  # fields of the last `process` record
        self._ranks: dict[ProcessKey, Fields] = {}  # fields of the last `rank` record
        self._ended: set[ProcessKey] = set()  # zombies among `_ranks` whose end was reported
        self._below: dict[ProcessKey, tuple[str, int | None]] = {}  # processes that were ever below a rank: (job, rank)
        self._trackers: dict[ProcessKey, ActivityTracker] = {}
        self._alive_ns: dict[ProcessKey, int] = {}  # when each rank was last sampled alive
        self._launchers: "dict[ProcessKey, Fields]" = {}  # launchers above ranks: job, attempt and identity
        self._exits = ExitWatch(self.procfs)
        self._writers: "tuple[ProcessKey, ...]" = ()
        self._refs: "tuple[RankRef, ...]" = ()  # of the live ranks
        self._refs_of: "list[Fields]" = []  # the fields of which they were made
        self._nccl: NcclVersions = None  # type: ignore[assignment]  # set by start()
        self._unclaimed = UnclaimedProcesses(self.procfs)
        self._unreadable = 0
        self._spawned: "dict[ProcessKey, Claim] | None" = None  # the newest one published by `SpawnedRankSampler`
        self._first = True

    def start(self) -> None:
        """Set up the process table."""
        names = set(VARIABLES)
        if self.context.process_filter:
            names.add(self.context.process_filter[0])
        reader = ProcessReader(self.procfs, names, (b"libpython",))
        self._nccl = NcclVersions(self.procfs)
        self.table = ProcessTable(self.procfs, reader, self.context.process_filter, self._boot_id())
        self.context.shared["exits"] = self._exits

    def tick(self, now: float) -> "Iterator[Fact]":
        """Scan the processes and sample every rank."""
        self.table.scan(now)
        failures, self.table.failures = self.table.failures, []
        for text in failures:
            yield "log", {"source": "agent", "severity": "error", "text": "a process cannot be examined: " + text,
                          "try_": "report it; its ranks are not seen"}  # fmt: skip
        self._number_spawned()
        for fact in self._sample(list(self._trackers)):
            yield fact
        if self.table.dirty:
            self.table.dirty = False
            before = set(self._trackers)
            for fact in self._evaluate():
                yield fact
            for fact in self._sample_first([key for key in self._trackers if key not in before]):
                yield fact
        for key in self._nccl.refresh(self._trackers, now):
            self._ranks[key] = dict(self._ranks[key], nccl=self._nccl.get(key))
            yield "rank", self._ranks[key]
        for fact in self._refresh_unclaimed(now):
            yield fact
        self._first = False
        self._publish()

    def _number_spawned(self) -> None:
        """Use the ranks that were read from stacks."""
        spawned: "dict[ProcessKey, Claim]" = self.context.shared.get("spawned", {})
        if spawned is self._spawned:
            return
        self._spawned = spawned
        for key, claim in spawned.items():
            entry = self.table.entries.get(key[0])
            if entry is not None and entry.key == key and key not in self.table.examiner.spawned:
                self.table.dirty |= self.table.examiner.number(entry, claim)

    def _refresh_unclaimed(self, now: float) -> "Iterator[Fact]":
        unclaimed = [key for key, fields in self._processes.items() if fields["program"] is not None]
        entries = [self.table.entries[key[0]] for key in unclaimed if key[0] in self.table.entries]
        for entry in self._unclaimed.refresh([entry for entry in entries if entry.facts is not None], now):
            if entry.key in self._processes:  # else its pid is another process now, which is evaluated next
                updated = {"program": self._unclaimed.get(entry), "part": self._part(entry)}
                self._processes[entry.key] = dict(self._processes[entry.key], **updated)
                yield "process", self._processes[entry.key]

    # -- discovery and exit -----------------------------------------------------------------------------------------

    def _evaluate(self) -> "list[Fact]":
        """Records of every process and rank that is new, changed or gone."""
        ownership = find_owners(self.table, self._below)
        below_ranks = set(ownership.owner_of).union(key[0] for key in self._below)
        presumed = presumed_ranks(self.table, below_ranks, self.users)
        owners = [self.table.entries[pid] for pid in sorted(ownership.owners)]
        ranks = {entry.key: self._rank_fields(entry, ownership) for entry in owners}
        ranks.update((rank.entry.key, self._presumed_fields(rank)) for rank in presumed)
        ownership.owner_of.update(below(self.table, {rank.entry.pid for rank in presumed}))
        self._remember_children(ownership, ranks)
        self._note_launchers(ranks)
        processes = self._process_fields(ownership, ranks)
        facts = [self._with_end(fact) for fact in _changes("process", self._processes, processes)]
        facts.extend(self._rank_changes(ranks))
        self._processes = processes
        waiting = [key[0] for key, fields in processes.items() if fields["has_children"] is False]
        self.table.watched = frozenset(key[0] for key in ranks).union((key[0] for key in self._below), waiting)
        self._count_unread()
        self.context.shared["unnumbered"] = candidates(self.table, {key[0] for key in self._below})
        return facts

    def _rank_changes(self, ranks: "dict[ProcessKey, Fields]") -> "Iterator[Fact]":
        for key, fields in ranks.items():
            before = self._ranks.get(key)
            if before is None:
                self._trackers[key] = ActivityTracker(*key)
                self._exits.add(key, fields["status"] != "no_permission")
            elif key in self._ended or before == fields:
                continue
            elif _rank_id(before) != _rank_id(fields):
                yield "rank", dict(before, status="withdrawn", reason="the process is now another rank")
            self._ranks[key] = fields
            yield "rank", fields
        for key in [key for key in self._ranks if key not in ranks]:
            if key[0] not in self.table.entries or self.table.entries[key[0]].key != key:
                for fact in self._end(key, None):
                    yield fact
            else:
                fields = self._ranks[key]
                self._drop(key)
                yield "rank", dict(fields, status="withdrawn", reason="the process is not a rank itself")

    def _rank_fields(self, entry: "ProcessEntry", ownership: "Ownership") -> "Fields":
        facts = entry.facts
        assert facts is not None and facts.claim is not None  # an owner has both
        fields = self._claim_fields(entry, facts.job, facts.claim)
        fields["gpu"] = gpu_of(facts.env, facts.claim.local_rank)
        if entry.pid in ownership.stale:
            fields["status"] = "stale"
            fields["reason"] = "left over from attempt %d, which was restarted" % facts.claim.attempt
        return fields

    def _presumed_fields(self, presumed: "PresumedRank") -> "Fields":
        return dict(
            self._claim_fields(presumed.entry, presumed.job, presumed.claim),
            status="no_permission",
            reason=presumed.reason,
        )

    def _claim_fields(self, entry: "ProcessEntry", job: "str | None", claim: "Claim") -> "Fields":
        facts = entry.facts
        assert facts is not None
        return {
            "job": job,
            "attempt": claim.attempt,
            "rank": claim.rank,
            "local_rank": claim.local_rank,
            "world_size": claim.world_size,
            "local_world_size": claim.local_world_size,
            "group_rank": claim.group_rank,
            "pid": entry.pid,
            "start_ticks": entry.start_ticks,
            "ns_pid": facts.ns_pid if facts.ns_pid != entry.pid else None,
            "uid": facts.uid,
            "gpu": None,
            "nccl": self._nccl.get(entry.key),
            "launcher": claim.launcher,
            "source": claim.source,
            "status": "present",
            "reason": None,
        }

    def _remember_children(self, ownership: "Ownership", ranks: "dict[ProcessKey, Fields]") -> None:
        alive = {}
        for pid, owner in ownership.owner_of.items():
            fields = ranks[self.table.entries[owner].key]
            alive[self.table.entries[pid].key] = (fields["job"], fields["rank"])
        for key, place in self._below.items():
            entry = self.table.entries.get(key[0])
            if entry is not None and entry.key == key and key not in ranks:
                alive.setdefault(key, place)  # its rank has ended; it keeps its role
        self._below = alive

    def _process_fields(self, ownership: "Ownership", ranks: "dict[ProcessKey, Fields]") -> "dict[ProcessKey, Fields]":
        """The `process` fields of everything worth a record, by (pid, start_ticks)."""
        processes: dict[ProcessKey, Fields] = {}
        parents = {entry.ppid for entry in self.table.entries.values()}
        pids = sorted(set(self.table.noted).union(key[0] for key in self._below))
        self.table.prefetch([self.table.entries[pid] for pid in pids])
        for pid in pids:
            entry = self.table.entries[pid]
            place = self._below.get(entry.key)
            if entry.key not in ranks and place is None and not entry.python and not entry.launcher:
                continue
            if entry.pid == self.table.own_pid or not self.table.belongs(entry):
                continue
            facts = self.table.describe(entry)
            if facts is None or facts.uid is None:
                continue
            job, rank, role, has_children = None, None, "python", None
            if entry.key in ranks:
                job, rank, role = ranks[entry.key]["job"], ranks[entry.key]["rank"], "rank"
            elif entry.launcher or entry.pid in ownership.launchers:
                role = "launcher"
                launched = self._launchers.get(entry.key)
                job = launched["job"] if launched is not None else None
                if job is None and entry.launcher in WAITS_FOR_NODES:
                    has_children = entry.pid in parents
            elif place is not None:
                job, rank = place
                role = child_role(facts.argv, entry.comm)
            processes[entry.key] = {
                "pid": entry.pid,
                "start_ticks": entry.start_ticks,
                "ppid": entry.ppid,
                "uid": facts.uid,
                "user": self.users.name(facts.uid),
                "comm": printable(entry.comm, 64),
                "cmdline": command_line(facts.argv),
                "role": role,
                "program": self._unclaimed.get(entry, self.table.lineage(entry)) if role == "python" else None,
                "part": self._part(entry),
                "job": job,
                "rank": rank,
                "has_children": has_children,
                "gone": False,
            }
        return processes

    def _part(self, entry: "ProcessEntry") -> "str | None":
        """The part of a process in Ray, vLLM or SGLang."""
        above = [framework_part(parent.facts.argv, parent.comm) for parent in self.table.lineage(entry) if parent.facts]
        facts = entry.details
        part = framework_part(
            facts.argv, entry.comm, facts.env, [part for part in above if part], self._unclaimed.uses_ray(entry)
        )
        return part and printable(part, 80)

    # -- activity ---------------------------------------------------------------------------------------------------

    def _sample_first(self, keys: "list[ProcessKey]") -> "list[Fact]":
        """The first sample of new ranks shows no activity; only the first tick waits for a second one."""
        if not self._first or not keys:
            return self._sample(keys, LastRuns(self.procfs))
        facts = self._sample(keys)
        time.sleep(FIRST_SAMPLE_S)
        ends = [fact for fact in facts if fact[0] == "rank"]
        return ends + self._sample([key for key in keys if key in self._trackers], LastRuns(self.procfs))

    def _sample(self, keys: "list[ProcessKey]", last_runs: "LastRuns | None" = None) -> "list[Fact]":
        """Sample these ranks: a `rank_stat` each, and the end of those that ended.

        With `last_runs` also for how long they have slept: how a rank hung before the agent came is known.
        """
        facts: list[Fact] = []
        for key in keys:
            fields = self._ranks[key]
            try:
                figures, stat = self._trackers[key].sample(self.procfs)
            except ProcessGone:
                facts.extend(self._end(key, None))
                self.table.lose(key[0])
                continue
            except PermissionError:
                continue  # hidden since (hidepid)
            figures.update(job=fields["job"], attempt=fields["attempt"], rank=fields["rank"])
            if last_runs is not None and stat.state in ASLEEP:
                slept_s = last_runs.slept_s(key[0], key[0], stat.processor)
                figures["slept_s"] = round(slept_s, 2) if slept_s is not None else None
            watched = self.context.shared.get("watched", {}).get(key)
            if watched is not None:
                read_ns, values = watched
                figures.update(step=step_of(values), watched=values, watched_at=read_ns)
            facts.append(("rank_stat", figures))
            if not stat.dead:
                self._alive_ns[key] = stamps.realtime_ns()
            elif key not in self._ended:
                readable = fields["status"] != "no_permission"
                facts.extend(self._end(key, describe_exit(stat, readable), exit_code_of(stat.exit_code, readable)))
        return facts

    def _end(self, key: "ProcessKey", how: "str | None", exit_code: "int | None" = None) -> "Iterator[Fact]":
        """The last `rank` record of a rank; `how` is None if its exit status is unknown."""
        fields = self._ranks[key]
        if key not in self._ended:
            end = self._exits.ends.get(key)
            if end is not None and exit_code is None and end.exit_code is not None:
                exit_code = end.exit_code
                how_it_ended = describe_code(exit_code)
            else:
                how_it_ended = how or "gone; its parent collected the exit status"
            alive_ns = self._alive_ns.get(key)
            yield "rank", dict(
                fields, status="exited", reason=how_it_ended, exit_code=exit_code,
                alive_at=max(alive_ns or 0, end.lo_ns) if end is not None else alive_ns,
                ended_at=end.hi_ns if end is not None else stamps.realtime_ns(),
            )  # fmt: skip
        if how is None:
            self._drop(key)
        else:
            self._ended.add(key)

    def _drop(self, key: "ProcessKey") -> None:
        del self._ranks[key]
        self._trackers.pop(key, None)
        self._alive_ns.pop(key, None)
        self._exits.drop(key)
        self._ended.discard(key)

    # -- snapshot ---------------------------------------------------------------------------------------------------

    def _count_unread(self) -> None:
        others = [entry for entry in self.table.noted.values() if entry.pid != self.table.own_pid]
        self._unreadable = sum(1 for entry in others if entry.python and entry.facts and entry.facts.denied)

    def _publish(self) -> None:
        live = [fields for key, fields in self._ranks.items() if key not in self._ended]
        if live != self._refs_of:
            self._refs_of, self._refs = live, tuple(map(RankRef, live))
        ranks = self._refs
        children = self._children(ranks)
        waits = {
            key: (tracker.sampled, tracker.waits)
            for key, tracker in self._trackers.items()
            if tracker.sampled is not None and tracker.waits is not None
        }
        snapshot = ProcessSnapshot(ranks, children, self.table.total, self._unreadable, waits)
        self.context.shared["processes"] = snapshot
        writers = tuple((rank.pid, rank.start_ticks) for rank in ranks) + tuple(self._launchers)
        if writers != self._writers:
            self._writers = writers
            refs = [WriterRef(self._ranks[key], self._error_file(key)) for key in writers if key in self._ranks]
            self.context.shared["writers"] = tuple(refs) + tuple(map(WriterRef, self._launchers.values()))

    def _error_file(self, key: "ProcessKey") -> "str | None":
        entry = self.table.entries.get(key[0])
        if entry is None or entry.facts is None:
            return None
        path = entry.facts.env.get("TORCHELASTIC_ERROR_FILE", "")
        return path if path.startswith("/") else None

    def _note_launchers(self, ranks: "dict[ProcessKey, Fields]") -> None:
        """Remember the launchers above ranks, with the newest attempt, while they live."""
        launchers: "dict[ProcessKey, Fields]" = {}
        for key, fields in ranks.items():
            for parent in self.table.lineage(self.table.entries[key[0]]):
                if parent.launcher and launchers.get(parent.key, fields)["attempt"] <= fields["attempt"]:
                    launchers[parent.key] = {
                        "job": fields["job"], "attempt": fields["attempt"], "pid": parent.pid,
                        "start_ticks": parent.start_ticks, "uid": parent.facts.uid if parent.facts else None,
                    }  # fmt: skip
        for key in launchers:
            if key not in self._launchers:
                self._exits.add(key, True)
        for key, fields in self._launchers.items():
            entry = self.table.entries.get(key[0])
            if entry is not None and entry.key == key:
                launchers.setdefault(key, fields)
        self._launchers = launchers

    def _with_end(self, fact: "Fact") -> "Fact":
        """The last record of a launcher with how it ended."""
        kind, fields = fact
        if not fields["gone"] or fields["role"] != "launcher":
            return fact
        key = (fields["pid"], fields["start_ticks"])
        end = self._exits.ends.get(key)
        self._exits.drop(key)
        return kind, dict(fields, exit_code=end.exit_code, ended_at=end.hi_ns) if end is not None else fields

    def _children(self, ranks: "tuple[RankRef, ...]") -> "tuple[ChildRef, ...]":
        attempts: dict[tuple[str, int | None], int] = {}
        for rank in ranks:
            place = (rank.job, rank.rank)
            attempts[place] = max(rank.attempt, attempts.get(place, 0))
        children = (self._processes.get(key) for key in self._below)
        return tuple(
            ChildRef(fields, attempts.get((fields["job"], fields["rank"]), 0))
            for fields in children
            if fields is not None and fields["job"] is not None and fields["role"] not in ("rank", "launcher")
        )

    def _boot_id(self) -> str:
        boot_id = self.context.boot_id or read_text(self.procfs.root + "/sys/kernel/random/boot_id")
        return boot_id or os.uname().nodename


def _rank_id(fields: "Fields") -> "tuple[Any, ...]":
    return (fields["job"], fields["attempt"], fields["rank"])


def _changes(kind: str, before: "dict[ProcessKey, Fields]", after: "dict[ProcessKey, Fields]") -> "Iterator[Fact]":
    """Records of new and changed entries, and one marked gone of each removed entry."""
    for key, fields in after.items():
        if before.get(key) != fields:
            yield kind, fields
    for key, fields in before.items():
        if key not in after:
            yield kind, dict(fields, gone=True)
