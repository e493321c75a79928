"""Exit reports of launchers and schedulers: torchrun, accelerate, DeepSpeed, Lightning, mp.spawn, srun, mpirun, Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

#: Signals by the names that shells and launchers print.
SIGNALS: Final = {
    "hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "trace/breakpoint trap": 5, "aborted": 6, "bus error": 7,
    "floating point exception": 8, "killed": 9, "user defined signal 1": 10, "segmentation fault": 11, "broken pipe": 13,
    "terminated": 15, "sighup": 1, "sigint": 2, "sigquit": 3, "sigill": 4, "sigabrt": 6, "sigbus": 7, "sigfpe": 8, "sigkill": 9,
    "sigsegv": 11, "sigpipe": 13, "sigterm": 15, "alarm clock": 14, "user defined signal 2": 12, "cpu time limit exceeded": 24,
    "file size limit exceeded": 25, "bad system call": 31,
}  # fmt: skip
SIGNAL_NAMES: Final = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ",
    31: "SIGSYS",
}  # fmt: skip


class ExitReport(msgspec.Struct, frozen=True):
    """A launcher's statement on the end of a process. `exit_code` is negative for a signal."""

    source: str  # torchrun, srun, …
    line: int
    exit_code: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    is_first: bool = False  # the launcher says that it failed first
    ends_attempt: bool = False  # one of these per attempt and launcher
    is_table: bool = False  # from the table that torchrun prints at its end, about the last attempt


class OutsideEvent(msgspec.Struct, frozen=True):
    """The end of a job from outside, or an event of its node, in the words of a scheduler."""

    kind: str  # outside: the job was ended; killed_step: ended, perhaps by the launcher itself; oom; node_lost
    text: str
    line: int
    source: str
    node: str | None = None
    rank: int | None = None
    pid: int | None = None


class LauncherLines(msgspec.Struct, frozen=True):
    """What launchers report in one stream."""

    exits: list[ExitReport]
    events: list[OutsideEvent]
    stopped: set[int]  # pids to which the launcher sent SIGTERM or SIGKILL


#: A line without any of these contains no report: the other patterns need not be tried.
_TRIGGER: Final = re.compile(
    r"^srun: error|exit|Exit|signal|Signal|rank  |CANCELLED|oom|OOM|Killed|killed|TERM_|fault|SIG|Node failure|NODE FAIL|terminated|Abort|abort|Evicted|preempt|Preempt|PREEMPT|shutting down|died|heartbeat|keep-alive"
)
_TABLE_ENTRY: Final = re.compile(r"^\s*\[[0-9]{1,6}\]:$")
_TABLE_FIELD: Final = re.compile(r"^\s+(time|host|rank|exitcode|error_file|traceback)\s*: (.*)$")
_FIRST: Final = re.compile(r"^Root Cause \(first observed failure\):")
_NAMES: Final = "|".join(sorted((name for name in SIGNALS if not name.startswith("sig")), key=len, reverse=True))
_EXITS: Final = tuple(
    (source, re.compile(pattern, re.IGNORECASE if source in ("srun", "mpirun") else 0))
    for source, pattern in (
        ("torchrun", r"failed \(exitcode: (?P<code>-?[0-9]{1,5})\) local_rank: (?P<local>[0-9]{1,6}) \(pid: (?P<pid>[0-9]{1,9})\)"),
        ("deepspeed", r"\[(?:launch|runner)\.py:[0-9]+:\w+\] .{0,4000}--local_rank[=' ,]{1,4}(?P<local>[0-9]{1,6})\b.{0,4000}exits with return code = (?P<code>-?[0-9]{1,5})"),
        ("deepspeed", r"exits with return code = (?P<code>-?[0-9]{1,5})"),
        ("Lightning", r"\[rank: (?P<rank>[0-9]{1,7})\] Child process with PID (?P<pid>[0-9]{1,9}) terminated with code (?P<code>-?[0-9]{1,5})"),
        ("mp.spawn", r"ProcessExitedException: process (?P<local>[0-9]{1,6}) terminated with (?:exit code (?P<code>[0-9]{1,5})|signal (?P<signal>SIG\w+))"),
        ("srun", rf"^srun: error: (?P<node>[^\s:]{{1,100}}): tasks? (?P<tasks>[0-9,\[\]-]{{1,2000}}): (?:Exited with exit code (?P<code>[0-9]{{1,5}})|(?P<signal>{_NAMES}|Out Of Memory))"),
        ("composer", r"(?:Global rank|Rank) (?P<rank>[0-9]{1,7}) (?:\(PID (?P<pid>[0-9]{1,9})\) )?(?:crashed|exited) with (?:exit )?code (?P<code>-?[0-9]{1,5})"),
        ("horovod", r"^Process (?P<rank>[0-9]{1,7}) exit with status code (?P<code>[0-9]{1,5})"),
        ("jsrun", r"first noticed rank (?P<rank>[0-9]{1,7})\) terminated with signal (?P<number>[0-9]{1,3})"),
        ("mpirun", r"noticed that process rank (?P<rank>[0-9]{1,7}) with PID (?P<pid>[0-9]{1,9}) on node (?P<node>\S{1,100}) exited on signal (?P<number>[0-9]{1,3})"),
        ("mpirun", r"MPI_ABORT was invoked on rank (?P<rank>[0-9]{1,7}) in communicator"),
        ("mpirun", r"^Abort\((?P<code>-?[0-9]{1,10})\) on node [0-9]{1,7} \(rank (?P<rank>[0-9]{1,7}) in comm"),
        ("mpirun", r"application called MPI_Abort\(.{1,60}, (?P<code>-?[0-9]{1,10})\) - process (?P<rank>[0-9]{1,7})"),
        ("mpirun", r"^\s*Process name: \[(?:\[[0-9]+,[0-9]+\]|\S{1,100}),(?P<rank>[0-9]{1,7})\]"),
    )
)  # fmt: skip
_EVENTS: Final = tuple(
    (kind, source, re.compile(pattern))
    for kind, source, pattern in (
        ("outside", "slurmstepd", r"\*\*\* (?:JOB|STEP) \S+ (?:ON (?P<node>\S+) )?CANCELLED AT \S+ DUE TO (?:TIME LIMIT|PREEMPTION|TIMEOUT|JOB REQUEUE)"),
        ("outside", "srun", r"(?:Job|STEP|StepId=)\S* .{0,100}(?:DUE TO TIME LIMIT|exceeded.{0,20}time limit|PREEMPT)"),
        ("node_lost", "slurmstepd", r"CANCELLED AT \S+ DUE TO NODE FAILURE(?:, SEE SLURMCTLD LOG)?"),
        ("node_lost", "srun", r"^srun: error: .{0,60}[Nn]ode failure on (?P<node>[^\s,]{1,200})"),
        ("node_lost", "Kubernetes", r"\b(?:NodeLost|NodeNotReady|node .{1,200} (?:is|was) (?:not ready|shut ?down))"),
        ("oom", "slurmstepd", r"Detected [0-9]+ oom[_-]kill event"),
        ("oom", "slurmstepd", r"[Oo]ut [Oo]f [Mm]emory.{0,40}(?:killed|handler)|exceeded (?:job|step|its) memory limit"),
        ("outside", "LSF", r"^TERM_(?:RUNLIMIT|OWNER|PREEMPT|ADMIN|REQUEUE)\w*:"),
        ("oom", "LSF", r"^TERM_MEMLIMIT:"),
        ("outside", "PBS", r"PBS: job killed: (?:walltime|cput)"),
        ("oom", "PBS", r"PBS: job killed: (?:mem|vmem|pmem)"),
        ("oom", "ALPS", r"OOM killer terminated this process"),
        ("oom", "Kubernetes", r"^\s*(?:Reason:\s+|.{0,40}\b)OOMKilled\b"),
        ("oom", "kernel", r"Out of memory: Kill(?:ed)? process (?P<pid>[0-9]{1,9})|Memory cgroup out of memory: Kill(?:ed)? process (?P<pid2>[0-9]{1,9})|oom-kill:constraint=.{0,400}\bpid=(?P<pid3>[0-9]{1,9})"),
        ("evicted", "Kubernetes", r"^\s*(?:Reason:\s+Evicted|.{0,20}Preempted(?:ByScheduler)?\b)|The node was low on resource"),
        ("killed_step", "slurmstepd", r"\*\*\* (?:JOB|STEP) \S+ (?:ON (?P<node>\S+) )?CANCELLED AT"),
        ("outside", "torchrun", r"Received (?:Signals\.SIG(?:TERM|INT|HUP|QUIT)|(?:15|2|1|3)) death signal, shutting down workers"),
        ("outside", "torchrun", r"torch\.distributed\.elastic\.multiprocessing\.api\.SignalException: Process [0-9]+ got signal: (?:15|2|1|3)\b"),
        ("first", "Ray", r"(?:ActorDiedError|WorkerCrashedError|NodeDiedError).{0,200}"),
    )
)  # fmt: skip
_STOPPED: Final = re.compile(
    r"(?:Sending process (?P<sent>[0-9]{1,9}) closing signal|Unable to shutdown process (?P<unable>[0-9]{1,9})|Terminating process (?P<spawned>[0-9]{1,9}) via signal|Killing subprocess (?P<killed>[0-9]{1,9}))"
)


def launcher_lines(lines: list[str], numbers: list[int]) -> LauncherLines:
    """The reports in the lines of one stream."""
    report = LauncherLines([], [], set())
    entry: dict[str, str] = {}
    is_first = is_table = False
    for index, line in enumerate(lines):
        if is_table or _TABLE_ENTRY.match(line):
            if _TABLE_ENTRY.match(line):
                is_table, entry = True, {}
                continue
            if field := _TABLE_FIELD.match(line):
                entry[field[1]] = field[2]
                if field[1] == "exitcode" and (exit_ := _of_table(entry, numbers[index], is_first)):
                    report.exits.append(exit_)
                continue
            is_table = line.startswith("    ") or not line.strip()
        if _FIRST.match(line):
            is_first = True
        elif (stopped := _STOPPED.search(line)) and stopped.lastgroup:
            report.stopped.add(int(stopped[stopped.lastgroup]))
        elif _TRIGGER.search(line):
            report.exits.extend(_exits(line, numbers[index]))
            report.events.extend(_events(line, numbers[index]))
    return report


def _of_table(entry: dict[str, str], number: int, is_first: bool) -> ExitReport | None:
    rank = re.match(r"([0-9]{1,7}) \(local_rank: ([0-9]{1,6})\)", entry.get("rank", ""))
    code = re.match(r"(-?[0-9]{1,5}) +\(pid: ([0-9]{1,9})\)", entry["exitcode"])
    if rank is None or code is None:
        return None
    return ExitReport(
        "torchrun", number, int(code[1]), int(rank[1]), int(rank[2]), entry.get("host"), int(code[2]),
        is_first=is_first, is_table=True,
    )  # fmt: skip


def _exits(line: str, number: int) -> Iterator[ExitReport]:
    for source, pattern in _EXITS:
        match = pattern.search(line)
        if match is None:
            continue
        values = match.groupdict()
        code = int(values["code"]) if values.get("code") else None
        if values.get("number"):
            code = -int(values["number"])
        elif values.get("signal"):
            code = -SIGNALS.get(values["signal"].lower(), 9)
        if source in ("srun", "mpirun") and code is not None and 128 < code < 160:
            code = 128 - code
        ranks = _numbers(values["tasks"]) if values.get("tasks") else [_int(values.get("rank"))]
        for rank in ranks:
            yield ExitReport(
                source, number, code, rank, _int(values.get("local")), values.get("node"), _int(values.get("pid")),
                is_first=source in ("Lightning", "mp.spawn", "deepspeed", "mpirun", "jsrun", "horovod"), ends_attempt=source == "torchrun",
            )  # fmt: skip
        return


def _events(line: str, number: int) -> Iterator[OutsideEvent]:
    for kind, source, pattern in _EVENTS:
        if match := pattern.search(line):
            values = match.groupdict()
            pid = values.get("pid") or values.get("pid2") or values.get("pid3")
            yield OutsideEvent(kind, line.strip()[:500], number, source, values.get("node"), None, _int(pid))
            return


def _numbers(text: str) -> list[int]:
    """The tasks of `0-3,7`; at most 100,000."""
    numbers: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        if first.isascii() and first.isdigit() and (not last or (last.isascii() and last.isdigit())):
            numbers.extend(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return numbers[:100_000]


def _int(text: str | None) -> int | None:
    return int(text) if text else None
