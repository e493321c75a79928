"""Texts of a verdict: summary, next step, and evidence lines that name their records."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from ...records import WaitTarget
from ...text.format import plural, seconds, size
from ...text.nodeset_fold import fold_numbers
from ..stacks.frame_models import FrameClass
from .await_chains import task_lines
from .job_view import HELD, JobView, WaitGroup
from .rank_state import WAITING, RankState
from .verdict import Site

#: What a rank is doing, after "rank 3 ".
_DOING: Final[dict[FrameClass, str]] = {
    "dataloader": "waits for its data loader", "checkpoint_io": "reads or writes a checkpoint",
    "file_io": "is in file I/O", "network_io": "is in network I/O",
    "python_lock": "waits for a lock in its own process",
    "gil_held": "is blocked: a thread that does not run holds the GIL", "compute": "computes", "compile": "compiles",
    "gc": "collects garbage", "sleep": "sleeps", "import": "imports a module",
    "subprocess": "waits for a child process",
    "debugger": "is in a debugger", "input": "waits for input", "device_wait": "waits for its device",
    "stopped": "is stopped", "uninterruptible": "is in uninterruptible sleep", "dead": "has exited",
    "missing": "is missing", "collective": "waits in a collective", "p2p": "waits for a message",
    "store_wait": "waits for a store key", "group_setup": "sets up a process group",
    "teardown": "tears down its process group", "unknown": "is at an unknown location",
}  # fmt: skip
#: Locks, queues and barriers of several processes.
_SHARED: Final = re.compile(r"/multiprocessing/(?!pool)")
#: Display names of torch functions.
_OPERATIONS: Final = {"_engine_run_backward": "the backward pass", "__next__": "the data loader"}
#: Classes whose next step is about the target of the wait, not the line of code.
_TARGET_DECIDES: Final[frozenset[FrameClass]] = frozenset({"file_io", "network_io", "input", "subprocess"})
#: Ranks, nodes or groups that a sentence lists by name.
_NAMED: Final = 4
#: Share of the time for which a CPU quota must throttle a rank to be mentioned.
_THROTTLED_SHARE: Final = 0.1
#: Memory that must be swapped out to be mentioned.
_SWAPPED_BYTES: Final = 1 << 30
#: Culprits, and places of waiting ranks, that get a line.
_EVIDENCE_LINES: Final = 8


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,5`."""
    distinct = sorted(set(numbers))
    return f"rank {distinct[0]}" if len(distinct) == 1 else f"ranks {fold_numbers(distinct)}"


def agreeing(words: str, numbers: Sequence[int]) -> str:
    """A singular predicate made plural for several ranks: `waits for its device` → `wait for their device`."""
    if len(set(numbers)) == 1:
        return words
    verb, _, rest = words.partition(" ")
    verbs = {"is": "are", "has": "have"}
    rest = rest.replace("its ", "their ").replace("or writes ", "or write ")
    return f"{verbs.get(verb, verb.removesuffix('s'))}{' ' + rest if rest else ''}"


def they(numbers: Sequence[int], words: str) -> str:
    """`rank 3 waits for its device`, `ranks 3-4 wait for their device`."""
    return f"{ranks(numbers)} {agreeing(words, numbers)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _numbers(states: Sequence[RankState]) -> list[int]:
    return [state.rank for state in states if state.rank is not None]


def class_words(cls: str) -> str:
    """A class of frames in words: `group setup`."""
    return cls.replace("_", " ")


def place(site: Site | None) -> str:
    """`train.py:30 train_step`; empty where unknown."""
    return "" if site is None else f"{_line(site)} {site.function}"


def operation(states: Sequence[RankState]) -> str:
    """The call that most of these ranks wait in, and its caller: `all_reduce (train.py:30 train_step)`."""
    states = [state for state in states if state.cls in WAITING] or states
    calls = Counter((state.call, place(state.caller)) for state in states)
    if not calls:
        return "communication"
    call, where = max(calls, key=lambda key: (calls[key], key))
    is_handle = all(state.trace is not None and state.trace.in_user for state in states)
    name = "communication" if is_handle else _OPERATIONS.get(call, call) or "communication"
    return f"{name} ({where})" if where else name


def waited(view: JobView) -> str:
    """`7 ranks waiting ≥ 41.2 s`: since they were first observed there."""
    waiting = [state for state in (view.waiting or view.opaque) if state.samples]
    if not waiting:
        return "No rank was observed waiting"
    shortest = min(max(state.place_s, state.frozen_s) for state in waiting)
    # a lower bound: never rounded up
    shortest = math.floor(shortest * 10) / 10 if shortest < 10 else math.floor(shortest)
    return f"{plural(len({state.rank for state in waiting}), 'rank')} waiting" + (
        f" ≥ {seconds(shortest)}" if shortest > 0 else ""
    )


def doing(state: RankState) -> str:
    """`sleeps in train.py:30 train_step`."""
    where = place(state.site)
    words = _DOING[state.cls] if not state.is_other_program else "runs a program other than Python (exec)"
    if state.cls == "python_lock" and state.trace and any(_SHARED.search(frame.file) for frame in state.trace.frames):
        words = "waits for a lock or queue that processes share"
    return f"{words}{' in ' + where if where else ''}"


def behind(view: JobView, late: Sequence[RankState]) -> str:
    """What the ranks do that have not entered the operation that the others wait in."""
    text, held = activities(late), _held_children(view, late)
    if not view.communicating:
        more = peers(view) if view.waiting else f"{waited(view)}." if view.opaque else ""
        return f"{text}.{held} {more}".rstrip()
    verb = "has" if len({state.rank for state in late}) == 1 else "have"
    text = f"{text} and {verb} not entered {operation(view.waiting)}.{held} {waited(view)}."
    return f"{text} {peers(view)}" if view.waited_for else text


def _held_children(view: JobView, late: Sequence[RankState]) -> str:
    """` Process 13 of rank 1 is stopped.`, of each rank that waits for a process which the kernel does not run."""
    held = [(state.rank, each) for state in late if (each := view.blocking_worker(state)) and each.cls in HELD]
    return "".join(f" Process {each.pid} of rank {rank} {_DOING[each.cls]}." for rank, each in held[:_NAMED])


def activities(states: Sequence[RankState]) -> str:
    """`rank 1 sleeps in train.py:30 step; ranks 2-3 compute in train.py:40 step`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for state in states:
        if state.rank is not None:
            groups[doing(state)].append(state.rank)
    text = "; ".join(they(numbers, words) for words, numbers in list(groups.items())[:_NAMED])
    return text + (f"; and {plural(len(groups) - _NAMED, 'group')} more" if len(groups) > _NAMED else "")


def peers(view: JobView) -> str:
    """Edges outside of collectives: `Rank 1 waits for rank 2 (a TCP connection to 10.0.0.2:41234).`"""
    groups: dict[tuple[tuple[int, ...], str], list[int]] = defaultdict(list)
    for rank, waits in view.waited_for.items():
        ends = sorted({wait.via or wait.what for wait in waits})
        through = ends[0] if len(ends) == 1 else f"{plural(len(ends), 'connection')}"
        groups[tuple(wait.rank for wait in waits), through].append(rank)
    parts = [
        f"{they(numbers, 'waits')} for {ranks(others)} ({through})"
        for (others, through), numbers in list(groups.items())[:_NAMED]
    ]
    more = f"; and {plural(len(groups) - _NAMED, 'group')} more" if len(groups) > _NAMED else ""
    return _capital(f"{'; '.join(parts)}{more}.")


def deadlock(view: JobView, closed: Sequence[Sequence[int]]) -> str:
    """Ranks that wait for each other, and through what."""
    who = "; ".join(ranks(circle) for circle in closed[:_NAMED])
    text = f"{who} wait for each other (deadlock). {peers(view)}"
    if view.communicating:
        text = f"{text} {they_wait_in(view)}"
    return f"{text} {waited(view)}."


def they_wait_in(view: JobView) -> str:
    """`Ranks 0,3 wait in all_reduce (train.py:30 step).`"""
    text = they(_numbers(view.communicating), f"waits in {operation(view.communicating)}")
    return f"{_capital(text)}."


def serves(view: JobView, serving: Sequence[RankState]) -> str:
    """Ranks that wait for requests."""
    numbers = [state.rank for state in serving if state.rank is not None]
    if view.communicating:
        others = they(_numbers(view.communicating), "waits")
        return f"{they(numbers, 'waits for requests')}, and {others} for it in {operation(view.communicating)}."
    return f"{they(numbers, 'waits for requests')}, and no rank waits for anything else."


def device(view: JobView, apart: Sequence[RankState], spinning: Sequence[RankState]) -> str:
    """All ranks wait for their devices, and what the GPUs do."""
    parts = []
    for label in ("computing", "idle"):
        numbers = [state.rank for state in apart if state.rank is not None and view.gpu_states.get(state.rank) == label]
        if numbers:
            words = "computes" if label == "computing" else "is idle"
            parts.append(f"the GPU of {ranks(numbers)} {words}")
    if spinning:
        numbers = [state.rank for state in spinning if state.rank is not None]
        parts.append(f"the GPU of {ranks(numbers)} is busy without computing, as in a collective")
    text = "all observed ranks wait for their devices"
    return f"{text}: {'; '.join(parts)}. {waited(view)}." if parts else f"{text}. {waited(view)}."


def blocked_ranks(view: JobView, blocked: Sequence[RankState]) -> str:
    """Ranks that are stopped, traced or in uninterruptible sleep, with the kernel's state."""
    parts = []
    for state in blocked[:_NAMED]:
        last = state.last
        kernel = {"T": "T state", "t": f"traced by pid {last.tracer_pid}", "D": f"D state, {last.wchan or '–'}"}
        how = "its cgroup is frozen" if last.frozen else kernel[last.proc_state or ""]
        where = place(state.site)
        in_place = f" in {where}" if where else ""
        parts.append(f"rank {state.rank} {_DOING[state.cls]} ({how}){in_place}")
    more = f" and {len(blocked) - _NAMED} more" if len(blocked) > _NAMED else ""
    return f"{'; '.join(parts)}{more}. {waited(view)}."


def dead(view: JobView, first: Sequence[int]) -> str:
    """Ranks that exited first, why, and which exited later."""
    later = sorted(set(view.dead) - set(first))
    reasons = {record.reason for rank in first if (record := view.last_record(rank)) and record.reason}
    how = f" ({reasons.pop()})" if len(reasons) == 1 else ""
    also = f", then {ranks(later)}" if later else ""
    return f"{they(first, 'has exited')}{how}{also}. {waited(view)}."


def ended(numbers: Sequence[int]) -> str:
    """`ranks 0-3 have exited`."""
    return they(numbers, "has exited")


def vanished(view: JobView, missing: Sequence[int], nodes: Sequence[str]) -> str:
    """Ranks of a job past its setup that were never seen on the nodes where they must have run."""
    on = f" on {', '.join(nodes[:_NAMED])}" if nodes else ""
    return f"{they(missing, 'is gone')}: not found{on} although the other ranks are past setup. {waited(view)}."


def absent(view: JobView, missing: Sequence[int]) -> str:
    """Ranks that were never found although the operation needs all ranks."""
    verb = "was" if len(missing) == 1 else "were"
    who = f"{ranks(missing)} of {view.evidence.job.world_size}"
    return f"{who} {verb} never found, and {operation(view.waiting)} needs all ranks. {waited(view)}."


def unseen(view: JobView, missing: Sequence[int]) -> str:
    """Ranks that run on no monitored node."""
    return f"{they(missing, 'is')} not on a monitored node; all observed ranks wait in {operation(view.waiting)}."


def hidden(view: JobView, numbers: Sequence[int]) -> str:
    """Ranks without data while all readable ranks wait."""
    return f"all readable ranks wait in {operation(view.waiting)}; no data on {ranks(numbers)}, so no culprit is named."


def remedy(view: JobView, numbers: Sequence[int]) -> str:
    """What makes unreadable ranks readable."""
    for state in view.states:
        if state.rank in numbers and state.trace is None:
            why = f"{state.status}: {state.last.reason}" if state.last.reason else state.status
            return f"read {ranks(numbers)} ({why})" + (f"; try: {state.last.try_}" if state.last.try_ else "")
    for missing in view.out_of_sight:
        if missing.rank in numbers:
            return f"make {ranks(numbers)} visible ({missing.reason})"
    return f"read {ranks(numbers)}"


def opaque(view: JobView) -> str:
    """Ranks whose Python stack does not show whether they wait for others."""
    where = "; ".join(sorted({place(state.site) for state in view.opaque})[:_NAMED])
    numbers = [state.rank for state in view.opaque if state.rank is not None]
    others = "1 other waits" if len(view.waiting) == 1 else f"{len(view.waiting)} others wait"
    rest = f"; {others} in {operation(view.waiting)}" if view.waiting else ""
    return f"{they(numbers, 'is')} in {where}, inside a native call of unknown purpose{rest}."


def cycle(rank_cycles: Sequence[Sequence[int]]) -> str:
    """`circular wait (deadlock): 0→1→0.`"""
    return f"circular wait (deadlock): {'; '.join('→'.join(map(str, (*ranks, ranks[0]))) for ranks in rank_cycles)}."


def split(view: JobView, groups: Sequence[WaitGroup]) -> str:
    """Ranks that wait at different places."""
    parts = "; ".join(
        f"{ranks(group.ranks)} in {_OPERATIONS.get(group.operation, group.operation)}"
        + (f" ({group.where})" if group.where else "")
        for group in groups[:_NAMED]
    )
    more = f"; and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    return f"ranks wait in different places: {parts}{more}. {waited(view)}."


def together(view: JobView) -> str:
    """All ranks wait at one place."""
    return f"all observed ranks wait in {operation(view.waiting)}, and no rank is late. {waited(view)}."


def wait_for_peer(view: JobView, peer: RankState) -> str:
    """Ranks that wait for a process outside of the job, what that does, and the ranks that do not wait for it."""
    waiting = [state for state in view.states if peer.key[:2] in state.outside]
    others = [state for state in view.states if state not in waiting]
    does = f"it {doing(peer)}" if peer.trace else f"its stack was not read ({peer.last.reason or peer.status})"
    text = f"{they(_numbers(waiting), 'waits')} for {process(peer)}, not part of the job: {does}"
    return f"{text}. {_capital(activities(others))}." if others else f"{text}."


def check_peer(view: JobView, peer: RankState) -> str:
    """The process, or the only rank that does not wait for it."""
    others = [state for state in view.states if peer.key[:2] not in state.outside]
    polls = any(target.kind in ("tcp", "unix") for target in peer.waits_for)
    if len(others) == 1 and polls:
        return f"check rank {others[0].rank} first: all others wait for {process(peer)}, which may wait for its answer"
    return f"check {process(peer)}"


def process(state: RankState) -> str:
    """`process 4242 on node00`."""
    return f"process {state.pid} on {state.node}"


def all_busy(view: JobView, classes: Sequence[FrameClass]) -> str:
    """No rank waits for another."""
    if len(classes) > 1:
        return f"no rank waits for another: {activities(view.behind)}."
    count = len(view.behind)
    return f"no rank waits for another: {plural(count, 'rank')} {agreeing(_DOING[classes[0]], range(count))}."


def nothing(view: JobView) -> str:
    """No stack at all."""
    if view.was_restarted:
        attempt = view.evidence.job.attempt
        return f"the job was restarted while it was monitored, and no rank of attempt {attempt} was captured."
    return "no stack could be read." if view.states else "no rank was captured."


def next_step(state: RankState | None, cls: FrameClass, where: str) -> str:
    """What to do about a culprit; `where` is ` on node018`, or empty."""
    wchan, pid = (state.last.wchan, state.pid) if state else (None, None)
    if state is not None and state.last.frozen:
        return f"thaw its cgroup{where}, e.g. docker unpause or scontrol resume; /proc/{pid}/cgroup names it"
    tracer = state.last.tracer_pid if state else None
    code = f"{_line(state.site) if state and state.site else 'the code of the rank'}{where}"
    code = f"what it runs{where}: ps -fp {pid}" if state and state.is_other_program else code
    target = next((target for target in state.waits_for if target.kind != "event"), None) if state else None
    if target is not None and cls in _TARGET_DECIDES and (step := _step_for_target(target, where)):
        return step
    return {
        "stopped": f"unless it was stopped on purpose: kill -CONT {pid}{where}",
        "debugger": f"end the debugger{f' (pid {tracer})' if tracer else ''}{where}",
        "uninterruptible": f"check what it waits for in the kernel ({wchan or 'unknown'}), often a file system{where}",
        "dead": f"check its log and dmesg{where} for an OOM kill, a GPU error or an exception",
        "missing": "check whether it was started and whether its node is reachable from the others",
        "dataloader": f"check the data loader's storage{where}",
        "checkpoint_io": f"check the file system of its checkpoint{where}",
        "file_io": f"check the file system it reads or writes{where}",
        "network_io": f"check the service it connects to{where}",
    }.get(cls, f"check {code}")


def _step_for_target(target: WaitTarget, where: str) -> str:
    """Next step for the target that a culprit waits for; empty if its line of code is more helpful."""
    pids = " ".join(map(str, target.pids))
    if target.kind == "child":
        return f"check its child process{where}: ps -fp {pids}" if pids else ""
    if target.direction == "lock":
        return f"find who holds the lock on {target.path}{where}: lslocks" + (f" (pid {pids})" if pids else "")
    if target.kind == "terminal":
        return f"answer the prompt on {target.path}{where}, or run the job without a terminal"
    if target.kind == "tcp" and target.remote:
        return f"check {target.remote.replace(' ', ':')}, which it waits for{where}"
    if target.kind in ("pipe", "unix") and pids:
        return f"check the process at the other end of the {target.kind}{where}: ps -fp {pids}"
    if target.kind in ("file", "pipe") and target.path:
        return f"check {target.path}{where}"
    return ""


def _line(site: Site) -> str:
    return f"{site.file.rsplit('/', 1)[-1]}:{site.line}"


def evidence_of(view: JobView, culprits: Sequence[RankState]) -> tuple[str, ...]:
    """Evidence from stacks, kernel state and collective counters; culprits first."""
    lines: list[str] = []
    for culprit in list(culprits)[:_EVIDENCE_LINES]:
        lines += _culprit_lines(view, culprit)
    lines.append(_stacks_line(view))
    lines += _waiting_lines(view, culprits)
    lines += _edge_lines(view)
    lines += task_lines((*culprits, *view.behind, *view.peers, *view.states))
    lines += _gpu_lines(view)
    for source in view.evidence.collectives:
        for absence in source.absences:
            number = "" if absence.seq is None else f" #{absence.seq}"
            lines.append(
                f"{source.source}: {absence.op}{number} of group {absence.group}: "
                f"entered [{fold_numbers(absence.entered)}], missing [{fold_numbers(absence.ranks)}]"
            )
        for mismatch in source.mismatches:
            sides = "; ".join(f"[{fold_numbers(members)}] {what}" for what, members in mismatch.sides)
            lines.append(f"{source.source}: group {mismatch.group}: {sides}")
    return tuple(lines)


def _activity(state: RankState) -> str:
    """`sleep in train.py:9 load`, or `sleep, no stack (not_python)`."""
    site = place(state.site)
    return class_words(state.cls) + (f" in {site}" if site else f", no stack ({state.status})")


def _culprit_lines(view: JobView, state: RankState) -> list[str]:
    kernel = ", ".join(f"{name} {value}" for name, value in state.kernel_state if value)
    if state.wakes_in_s is not None:
        kernel += f", ends by itself in ≤ {seconds(math.ceil(state.wakes_in_s * 10) / 10)}"
    who = f"stack rank {state.rank} {state.node} pid {state.pid} {state.thread or 'MainThread'}"
    lines = [f"{who}: {_activity(state)}" + (f"; {kernel}" if kernel else "")]
    if state.site is not None and state.site.source:
        lines.append(f"source {state.site.file}:{state.site.line}: {state.site.source}")
    if state.throttled_s and state.throttled_s >= _THROTTLED_SHARE * state.watched_s:
        lines.append(
            f"cgroup rank {state.rank}: throttled by its CPU quota for {seconds(state.throttled_s)} "
            f"of {seconds(state.watched_s)}"
        )
    lines += _memory_lines(state)
    worker = view.blocking_worker(state)
    if worker is not None:
        proc_state = f"; state {worker.last.proc_state}" if worker.last.proc_state else ""
        who = f"stack {worker.role} of rank {state.rank} pid {worker.pid}"
        lines.append(f"{who}: {_activity(worker)}{proc_state}")
    return lines


def _memory_lines(state: RankState) -> list[str]:
    """What lack of memory does to a rank: reclaim, limits, swap."""
    lines = []
    stalled_s, hits = state.memory_stalled_s or 0.0, state.memory_limit_hits or 0
    if hits or (stalled_s and stalled_s >= _THROTTLED_SHARE * state.watched_s):
        lines.append(
            f"cgroup rank {state.rank}: waited for memory for {seconds(stalled_s)} of {seconds(state.watched_s)}, "
            f"and reached its memory limit {plural(hits, 'time')}"
        )
    if (swapped := state.last.swapped_bytes or 0) >= _SWAPPED_BYTES:
        lines.append(f"memory rank {state.rank}: {swapped / 2**30:.1f} GiB swapped out")
    return lines


def _edge_lines(view: JobView) -> list[str]:
    """Each wait outside of collectives, with its call, and the process that can end it."""
    return [
        f"wait rank {rank}: {wait.through} for {wait.what}, held by "
        + (f"{wait.via}, which waits for rank {wait.rank}" if wait.via else f"rank {wait.rank}")
        + f" (pid {wait.pid} on {wait.node})"
        for rank, waits in view.waited_for.items()
        for wait in waits
    ][:_EVIDENCE_LINES]


def _gpu_lines(view: JobView) -> list[str]:
    """The figures of the GPUs whose ranks wait for them, and whether data moves between GPUs."""
    lines = []
    highest = max((gpu.power_w or 0.0 for gpu in view.evidence.gpus.values()), default=0.0)
    for state in view.device_waiting:
        gpu = view.evidence.gpus.get(state.rank) if state.rank is not None else None
        if gpu is None or gpu.util_pct is None:
            continue
        figures = [f"{gpu.util_pct:.0f} % utilisation"]
        if gpu.power_w is not None:
            figures.append(f"{gpu.power_w:.0f} W (highest of the job: {highest:.0f} W)")
        moved = (("NVLink", gpu.nvlink_bytes_s), ("RDMA ports of its node", gpu.rdma_bytes_s))
        figures += [f"{size(rate)}/s over {name}" for name, rate in moved if rate is not None]
        lines.append(f"{gpu.name} rank {state.rank}: {', '.join(figures)}")
    return lines[:_EVIDENCE_LINES]


def _stacks_line(view: JobView) -> str:
    captured = {state.rank for state in view.captured}
    same = {state.rank for state in view.captured if state.frozen_s > 0 and state.frozen_s >= state.watched_s}
    world = view.evidence.job.world_size
    return (
        f"stacks {len(captured)}/{world if world is not None else '–'} ranks, {len(same)} unchanged over "
        f"{plural(view.samples, 'sample')} in {seconds(view.watched_s)}"
    )


def _waiting_lines(view: JobView, culprits: Sequence[RankState]) -> list[str]:
    """Where the waiting ranks are, the most frequent places first."""
    counts = Counter[tuple[str, str, str]]()
    ranks: dict[tuple[str, str, str], set[int]] = {}
    named = set(culprits)
    for state in (*view.waiting, *view.opaque):
        if state in named or state.rank is None:
            continue
        key = (state.cls, state.call, place(state.caller))
        counts[key] += 1
        ranks.setdefault(key, set()).add(state.rank)
    return [
        f"stack ranks [{fold_numbers(ranks[key])}]: {class_words(key[0])} in {key[1]}"
        + (f" from {key[2]}" if key[2] else "")
        for key in sorted(counts, key=lambda place: (-counts[place], place))[:_EVIDENCE_LINES]
    ]
