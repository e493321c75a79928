"""How a verdict is said: one sentence with ranks, places and seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from ...text.rank_ranges import ranges
from ..stacks.frame_models import FrameClass
from .job_view import JobView
from .rank_state import RankState
from .verdict import Site
from .wait_groups import WaitGroup

#: What a rank is doing, after "rank 3 ".
_DOING: Final[dict[FrameClass, str]] = {
    "dataloader": "waits for its data loader", "checkpoint_io": "reads or writes a checkpoint",
    "file_io": "is in file I/O", "network_io": "is in network I/O",
    "python_lock": "waits for a lock of its own process",
    "gil_held": "is held by a thread that has the interpreter's lock and does not run", "compute": "computes",
    "compile": "compiles", "gc": "collects garbage", "sleep": "sleeps", "import": "imports a module",
    "subprocess": "waits for a child process", "debugger": "is in a debugger", "input": "waits for input",
    "device_wait": "waits for its device", "stopped": "is stopped", "uninterruptible": "is in an uninterruptible sleep",
    "dead": "has ended", "missing": "is missing", "collective": "waits in a collective", "p2p": "waits for a message",
    "store_wait": "waits for a key of the store", "group_setup": "sets up a process group",
    "teardown": "tears its process group down", "unknown": "is somewhere that nobody can tell",
}  # fmt: skip
#: Names of torch's functions that people know otherwise.
_OPERATIONS: Final = {"_engine_run_backward": "the backward pass", "__next__": "the data loader"}
_NAMED: Final = 4


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,5`."""
    found = sorted(set(numbers))
    return f"rank {found[0]}" if len(found) == 1 else f"ranks {ranges(found)}"


def agreeing(words: str, numbers: Sequence[int]) -> str:
    """What one rank does, said of these: `waits for its device` → `wait for their device`."""
    if len(set(numbers)) == 1:
        return words
    verb, _, rest = words.partition(" ")
    verbs = {"is": "are", "has": "have"}
    rest = rest.replace("its ", "their ").replace("or writes ", "or write ")
    return f"{verbs.get(verb, verb.removesuffix('s'))}{' ' + rest if rest else ''}"


def they(numbers: Sequence[int], words: str) -> str:
    """`rank 3 waits for its device`, `ranks 3-4 wait for their device`"""
    return f"{ranks(numbers)} {agreeing(words, numbers)}"


def counted(number: int, what: str) -> str:
    """`1 sample`, `3 samples`"""
    return f"{number} {what}{'s' * (number != 1)}"


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def place(site: Site | None) -> str:
    """`train.py:30 train_step`; empty where nobody knows."""
    if site is None:
        return ""
    return f"{site.file.rsplit('/', 1)[-1]}:{site.line} {site.function}"


def operation(standings: Sequence[RankState]) -> str:
    """What most of them wait in, and where: `all_reduce (train.py:30 train_step)`."""
    calls = Counter((standing.call, place(standing.caller)) for standing in standings)
    if not calls:
        return "communication"
    call, where = max(calls, key=lambda one: (calls[one], one))
    is_handle = all(standing.trace is not None and standing.trace.in_user for standing in standings)
    name = "communication" if is_handle else _OPERATIONS.get(call, call) or "communication"
    return f"{name} ({where})" if where else name


def waited(scene: JobView) -> str:
    """`7 ranks have waited for 41.2 s`"""
    waiting = [one for one in (scene.waiting or scene.opaque) if one.looks]
    if not waiting:
        return "nobody was seen to wait"
    count = len({one.rank for one in waiting})
    longest = min(max(one.place_s, one.frozen_s) for one in waiting)
    for_s = f" for {seconds(longest)}" if longest > 0 else ""
    return f"{count} rank{'s have' if count > 1 else ' has'} waited{for_s}"


def doing(one: RankState) -> str:
    """`sleeps in train.py:30 train_step`"""
    where = place(one.site)
    return f"{_DOING[one.cls]}{' in ' + where if where else ''}"


def behind(scene: JobView, found: Sequence[RankState]) -> str:
    groups: dict[str, list[int]] = defaultdict(list)
    for one in found:
        if one.rank is not None:
            groups[doing(one)].append(one.rank)
    said = "; ".join(they(numbers, words) for words, numbers in list(groups.items())[:_NAMED])
    more = f"; and {counted(len(groups) - _NAMED, 'group')} more" if len(groups) > _NAMED else ""
    if not scene.waiting:
        return f"{said}{more}. {_capital(waited(scene))}." if scene.opaque else f"{said}{more}."
    verb = "has" if sum(map(len, groups.values())) == 1 else "have"
    return f"{said}{more} and {verb} not entered {operation(scene.waiting)}. {_capital(waited(scene))}."


def held(scene: JobView, found: Sequence[RankState]) -> str:
    said = []
    for one in found[:_NAMED]:
        words = {"T": "T state", "t": f"traced by pid {one.last.tracer_pid}", "D": f"D state, {one.last.wchan or '–'}"}
        where = place(one.site)
        said.append(
            f"rank {one.rank} {_DOING[one.cls]} ({words[one.last.proc_state or '']}){' in ' + where if where else ''}"
        )
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{'; '.join(said)}{more}. {_capital(waited(scene))}."


def dead(scene: JobView, first: Sequence[int]) -> str:
    others = sorted(set(scene.dead) - set(first))
    reasons = {record.reason for rank in first if (record := scene.last_record(rank)) and record.reason}
    how = f" ({reasons.pop()})" if len(reasons) == 1 else ""
    also = f", then {ranks(others)}" if others else ""
    return f"{they(first, 'has ended')}{how}{also}. {_capital(waited(scene))}."


def ended(numbers: Sequence[int]) -> str:
    """`ranks 0-3 have ended`"""
    return they(numbers, "has ended")


def vanished(scene: JobView, missing: Sequence[int], nodes: Sequence[str]) -> str:
    """Ranks that must have been there, and are not."""
    on = f" on {', '.join(nodes[:_NAMED])}" if nodes else ""
    they_are = "it is" if len(set(missing)) == 1 else "they are"
    return (
        f"{they(missing, 'is gone')}: the others are past the setup, and {they_are} not found{on}. "
        f"{_capital(waited(scene))}."
    )


def absent(scene: JobView, missing: Sequence[int]) -> str:
    world = scene.evidence.job.world_size
    verb = "was" if len(missing) == 1 else "were"
    return (
        f"{ranks(missing)} of {world} {verb} never found, and {operation(scene.waiting)} needs all. "
        f"{_capital(waited(scene))}."
    )


def unseen(scene: JobView, missing: Sequence[int]) -> str:
    run = "runs" if len(missing) == 1 else "run"
    return f"{ranks(missing)} {run} on no node that is watched; all that are seen wait in {operation(scene.waiting)}."


def hidden(scene: JobView, numbers: Sequence[int]) -> str:
    return (
        f"all ranks that can be read wait in {operation(scene.waiting)}; of {ranks(numbers)} nothing is known, "
        "which proves nothing."
    )


def remedy(scene: JobView, numbers: Sequence[int]) -> str:
    """What would show the ranks that cannot be seen."""
    for standing in scene.standings:
        if standing.rank in numbers and standing.trace is None:
            why = f"{standing.status}: {standing.last.reason}" if standing.last.reason else standing.status
            return f"read {ranks(numbers)} ({why})" + (f"; try: {standing.last.try_}" if standing.last.try_ else "")
    for missing in scene.out_of_sight:
        if missing.rank in numbers:
            return f"see {ranks(numbers)} ({missing.reason})"
    return f"read {ranks(numbers)}"


def opaque(scene: JobView) -> str:
    where = "; ".join(sorted({place(one.site) for one in scene.opaque})[:_NAMED])
    numbers = [one.rank for one in scene.opaque if one.rank is not None]
    others = "1 other waits" if len(scene.waiting) == 1 else f"{len(scene.waiting)} others wait"
    rest = f"; {others} in {operation(scene.waiting)}" if scene.waiting else ""
    return f"{they(numbers, 'stands')} in {where}, in a call that is no Python and says nothing{rest}."


def cycle(found: Sequence[Sequence[int]]) -> str:
    circles = "; ".join("→".join(map(str, (*circle, circle[0]))) for circle in found)
    return f"ranks wait for each other's messages in a circle: {circles}."


def camps(scene: JobView, found: Sequence[WaitGroup]) -> str:
    said = "; ".join(
        f"{ranks(camp.ranks)} in {_OPERATIONS.get(camp.operation, camp.operation)}"
        + (f" ({camp.where})" if camp.where else "")
        for camp in found[:_NAMED]
    )
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"ranks wait in different places: {said}{more}. {_capital(waited(scene))}."


def together(scene: JobView) -> str:
    return f"all ranks that are seen wait in {operation(scene.waiting)}, and none is behind. {_capital(waited(scene))}."


def all_busy(scene: JobView, classes: Sequence[FrameClass]) -> str:
    if len(classes) == 1:
        return f"no rank waits for another: {_plural_doing(classes[0], len(scene.behind))}."
    return "no rank waits for another; they do different things."


def nothing(scene: JobView) -> str:
    return "no rank's stack could be read." if scene.standings else "no rank was captured."


def next_step(one: RankState | None, cls: FrameClass, where: str) -> str:
    """What a person would do next about a culprit."""
    wchan = one.last.wchan if one else None
    pid = one.pid if one else None
    tracer = one.last.tracer_pid if one else None
    return {
        "stopped": f"if nobody stopped it on purpose: kill -CONT {pid}{where}",
        "debugger": f"end the debugger{f' (pid {tracer})' if tracer else ''}{where}",
        "uninterruptible": f"see what it waits for in the kernel ({wchan or 'unknown'}): mostly a file system{where}",
        "dead": f"read the end of its log and dmesg{where}: killed for memory, a GPU error, an exception",
        "missing": "see whether it was started, and whether its node can be reached by the others",
        "dataloader": f"look at what its data loader reads{where}",
        "checkpoint_io": f"look at the file system of its checkpoint{where}",
        "file_io": f"look at the file system it reads from or writes to{where}",
        "network_io": f"look at the service it talks to{where}",
    }.get(cls, f"look at the line it stands in{where}")


def _plural_doing(cls: FrameClass, count: int) -> str:
    return f"{count} ranks, each of which {_DOING[cls]}" if count != 1 else f"1 rank, which {_DOING[cls]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
