"""Ordered rules that name the culprit of a stalled job. The first rule that applies decides.

The verdict names the late ranks, not the smallest group. Each rule states when it refuses, and what
evidence would decide.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ..stacks.frame_models import FrameClass
from . import poll_wording, wording
from .job_view import HELD, JobView, cycles, is_in_subgroup, wait_groups
from .progress import Stillness, moves, repeats
from .rank_state import POLLS_S, RankState
from .verdict import Kind
from .wait_for import circles, is_waiting_for_clients

#: Ascending; each doubt lowers the confidence by one step.
CONFIDENCES: Final = ("possible", "likely", "certain")
#: ns. Exits closer than this have no order: the agent samples ranks once a tick, and nodes tick independently.
TOGETHER_NS: Final = 2_500_000_000
#: Seconds. A sleep that is longer is meant never to end.
MEANT_TO_END_S: Final = 86_400.0
#: Collectives to which every rank contributes: none of them waits in one for its next task.
_OF_EQUALS: Final = re.compile(r"all_?reduce|all_?gather|all_?to_?all|reduce_scatter|barrier", re.IGNORECASE)
#: Exit codes of ranks that a launcher ended.
_SENT_BY_LAUNCHERS: Final = frozenset({-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT})
#: Exit codes of crashes: signals that no launcher sends.
_CRASHES: Final = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE})


class RuleResult(msgspec.Struct, frozen=True):
    """The result of one rule. Without `ranks` no culprit is named; `kind` is then `external` or `none`."""

    kind: Kind
    ranks: tuple[tuple[int, FrameClass], ...]
    trust: int  # index in CONFIDENCES, before any doubt
    text: str  # the headline
    caveats: tuple[str, ...] = ()
    need: str = ""  # what would decide it, where no culprit is named
    is_idle: bool = False  # a service without requests


def apply_rules(view: JobView, still: Stillness) -> RuleResult:
    """The result of the first rule that applies."""
    for rule in _RULES:
        result = rule(view, still)
        if result is not None:
            return result
    raise AssertionError("the last rule always applies")


def _dead(view: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that exited while others wait for them. Of several, those that exited first; the rest may have followed."""
    if not view.dead or not (view.waiting or view.opaque):
        return None
    first, is_certain = first_exits(view)
    caveats = () if is_certain else ("the order of the exits was not observed",)
    return RuleResult("rank_dead", tuple((rank, "dead") for rank in first), 2, wording.dead(view, first), caveats)


def first_exits(view: JobView) -> tuple[tuple[int, ...], bool]:
    """The ranks that exited first, and whether that is certain.

    Exits without an observed order are ordered by their cause: a crash before a kill, a kill before an exit, because
    ranks that lose a neighbour raise an error and exit.
    """
    dead = view.dead
    if len(dead) == 1:
        return dead, True
    records = {rank: view.last_record(rank) for rank in dead}
    ends = {rank: record.rx for rank, record in records.items() if record is not None and record.status == "exited"}
    if ends:
        earliest = min(ends.values())
        dead = tuple(rank for rank in dead if rank not in ends or ends[rank] - earliest <= TOGETHER_NS)
    codes = {rank: record.exit_code if (record := records[rank]) is not None else None for rank in dead}
    for causes in (_CRASHES, _SENT_BY_LAUNCHERS):
        first = tuple(rank for rank in dead if codes[rank] in causes)
        if first and len(first) < len(dead) and all(code is not None for code in codes.values()):
            return first, len(first) == 1
    return dead, len(dead) == 1


def _vanished(view: JobView, still: Stillness) -> RuleResult | None:
    """A rank that was never seen, of a job past its setup: it existed, so it exited before the console connected.

    Refuses unless the other ranks of its node are found on a reachable node: else it may run on an unmonitored one.
    """
    gone = {missing.rank: view.home_node(missing.rank) for missing in view.not_found if missing.rank is not None}
    is_set_up = any(state.cls in ("collective", "p2p") for state in view.waiting)
    if not gone or None in gone.values() or not is_set_up or view.behind:
        return None
    caveats = ["its exit was not observed", *_opaque_caveats(view)]
    nodes = sorted({node for node in gone.values() if node})
    text = wording.vanished(view, sorted(gone), nodes)
    return RuleResult("rank_dead", tuple((rank, "dead") for rank in sorted(gone)), 2, text, tuple(caveats))


def _absent(view: JobView, still: Stillness) -> RuleResult | None:
    """A rank that is on no monitored node, while all observed ranks wait.

    Refuses where several are missing and every listed node is full: they may run on nodes that are not listed.
    """
    absent = tuple(sorted(missing.rank for missing in view.not_found if missing.rank is not None))
    if not absent or view.behind or not view.waiting:
        return None
    setting_up = all(state.cls == "group_setup" for state in view.waiting)
    if view.out_of_sight or not (_has_room(view) or len(absent) == 1):
        need = f"monitor the nodes that should run {wording.ranks(absent)}, or check whether they were started"
        return RuleResult("none", (), 0, wording.unseen(view, absent), (), need)
    caveats = [] if setting_up else ["the job is past setup, so the rank may run on an unmonitored node"]
    caveats += _opaque_caveats(view)
    text = wording.absent(view, absent)
    return RuleResult("rank_absent", tuple((rank, "missing") for rank in absent), 2, text, tuple(caveats))


def _has_room(view: JobView) -> bool:
    """Whether a monitored node has fewer ranks than the fullest one."""
    counts = dict.fromkeys(view.evidence.nodes, 0)
    for state in view.states:
        counts[state.node] = counts.get(state.node, 0) + 1
    return bool(counts) and min(counts.values()) < max(counts.values())


def _held(view: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that the kernel does not run: stopped, traced, or in uninterruptible sleep."""
    held = [
        state
        for state in view.behind
        if state.cls in HELD and (state.last.frozen or (state.last.proc_state or "") in ("T", "t", "D"))
    ]
    if not held:
        return None
    kind: Kind = "rank_stopped" if any(state.cls != "uninterruptible" for state in held) else "rank_blocked"
    caveats = () if view.waiting else ("no other rank was observed waiting",)
    return RuleResult(kind, _named(held), 2, wording.blocked_ranks(view, held), caveats)


def _behind(view: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that have not reached the operation that the others wait in, however many they are.

    Refuses where no rank is known to wait, unless the job has one rank. Outside of collectives only those are named
    that a waiting rank depends on, directly or through others.
    """
    candidates = list(view.behind)
    if not view.communicating and view.waited_for:
        needed = _depended_on(view)
        candidates = [state for state in candidates if state.rank in needed]
    is_awaited = bool(view.waiting or (view.device_waiting and len(view.device_waiting) == len(view.opaque)))
    if not candidates or not (is_awaited or len(view.states) == 1):
        return None
    stuck = [state for state in candidates if state in still.stuck]
    late = stuck or candidates
    caveats = []
    asleep = [state for state in stuck if not _may_poll(state)]
    if asleep and len(asleep) < len(stuck):
        pollers = _numbers([state for state in stuck if _may_poll(state)])
        caveats.append(wording.they(pollers, "wakes periodically in its own code and may be polling"))
        late = asleep
    if not stuck:
        caveats += ["still making progress, so possibly only slow"] * 2
    elif any(state.runs for state in late):
        caveats.append("computing, so possibly only slow")
    elif all(_is_limited(state) for state in late):
        limited = "its waits are limited, so it may poll or try again"
        caveats += [limited] if all(map(repeats, late)) else [limited] * 2
    if view.pollers:
        caveats += [poll_wording.UNSEEN_CAVEAT] * (2 if any(state.cls == "python_lock" for state in late) else 1)
    if view.waiting:
        caveats += [*_opaque_caveats(view), *_edge_caveats(view)]
    elif view.device_waiting and not _spin(view):
        caveats.append("that the others wait in a collective was not observed, only that they wait for their devices")
    text = poll_wording.behind(view, late) if view.pollers else wording.behind(view, late)
    return RuleResult("rank_missing", _named(late), 2, text, tuple(caveats))


def _depended_on(view: JobView) -> frozenset[int]:
    """The ranks that others wait for through sockets, pipes or locks, directly or through further ranks."""
    reached = {peer.rank for peers in view.waited_for.values() for peer in peers}
    while more := {peer.rank for rank in reached for peer in view.waited_for.get(rank, ())} - reached:
        reached |= more
    return frozenset(reached)


def _polls(view: JobView, still: Stillness) -> RuleResult | None:
    """All ranks poll, each in its own loop, or the others only serve them: what they poll for is not visible.

    No rank is named: they may wait for each other, or for work that comes from outside.
    """
    if not view.pollers or view.opaque:
        return None
    if any(state.cls != "python_lock" or not view.has_listener(state) for state in view.behind):
        return None
    return RuleResult("none", (), 0, poll_wording.polls(view), (), poll_wording.next_step(view))


def _spin(view: JobView) -> bool:
    """Whether the GPUs of the ranks that wait for their devices are busy without computing: in a collective."""
    states = [view.gpu_states.get(state.rank or 0, "unknown") for state in view.device_waiting]
    return bool(states) and all(state == "spinning" for state in states)


def _deadlock(view: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that wait for each other, at least one of them through a socket, a pipe or a lock.

    Refuses where one of them may be woken from outside: by a new client, or over a connection whose end is unknown.
    """
    if not view.waited_for:
        return None
    waits = {rank: frozenset(peer.rank for peer in peers) for rank, peers in view.waited_for.items()}
    for state in view.states:
        if state.rank in waits and state.has_unknown_end:
            waits[state.rank] |= {_OUTSIDE}
    entered = {state.rank for state in view.communicating}
    absent = frozenset(state.rank for state in view.states if state.rank is not None and state.rank not in entered)
    for state in view.communicating:
        if state.rank is not None:
            to = frozenset(peer.rank for peer in state.peers) if state.cls == "p2p" else absent
            waits[state.rank] = to or frozenset({_OUTSIDE})
    members = sorted({rank for circle in circles(waits) for rank in circle} & view.waited_for.keys())
    if not members:
        return None
    named = [member for rank in members if (member := view.state_of(rank)) is not None]
    text = wording.deadlock(view, circles(waits))
    return RuleResult("wait_cycle", _named(named), 2, text, (*_opaque_caveats(view), *_edge_caveats(view)))


#: Where native frames were read, and show neither waiting nor computing.
_SHOWN: Final = "see their native frames in the Hang view, or enable Flight Recorder (TORCH_FR_BUFFER_SIZE)"
#: Placeholder for all processes that are not ranks of the job.
_OUTSIDE: Final = -1


def _serves(view: JobView, still: Stillness) -> RuleResult | None:
    """All ranks wait for requests, or for one that does: a service without clients, not a hang.

    Refuses where others wait in a collective to which all contribute: these have work, so that one has, too.
    """
    if view.opaque or not view.states or any(_OF_EQUALS.search(state.call) for state in view.communicating):
        return None
    serving = [state for state in view.states if view.is_serving(state) and not state.is_communicating]
    if view.communicating:  # a thread that serves figures of a training job is no service
        serving = [state for state in serving if is_waiting_for_clients(state.waits_for)]
    waiting = [state for state in view.states if state.rank in view.waited_for or state.is_communicating]
    if not serving or any(state not in serving and state not in waiting for state in view.states):
        return None
    return RuleResult(
        "none", (), 0, wording.serves(view, serving), (), "no action needed unless requests are pending", True
    )


def _device(view: JobView, still: Stillness) -> RuleResult | None:
    """All ranks wait for their devices: what the GPUs do decides. Named is the one that computes while others spin.

    Refuses without figures of the GPUs.
    """
    if not view.device_waiting or view.behind or view.waiting or len(view.device_waiting) != len(view.states):
        return None
    states = {state.rank: view.gpu_states.get(state.rank or 0, "unknown") for state in view.device_waiting}
    apart = [state for state in view.device_waiting if states[state.rank] in ("computing", "idle")]
    spinning = [state for state in view.device_waiting if states[state.rank] == "spinning"]
    text = wording.device(view, apart, spinning)
    if not apart or len(apart) + len(spinning) != len(view.device_waiting) or len(apart) >= len(spinning):
        need = "capture again with GPU figures (power, SM and DRAM activity), or enable Flight Recorder"
        return RuleResult("none", (), 0, text, (), need)
    return RuleResult("rank_missing", _named(apart), 1, text)


def _is_limited(state: RankState) -> bool:
    """Whether its sleep, or wait, has an end that is not beyond all use."""
    return state.pause_s is not None and state.pause_s < MEANT_TO_END_S


def _may_poll(state: RankState) -> bool:
    """Whether it may poll for the progress of others: it sleeps again and again, or computes in its own code."""
    in_user = state.trace is not None and state.trace.in_user
    wakes_up = state.runs or (state.wakes_s or 0.0) >= POLLS_S
    return wakes_up and (state.cls == "sleep" or (in_user and state.cls == "compute"))


def _all_busy(view: JobView, still: Stillness) -> RuleResult | None:
    """No rank waits for another: a shared resource may be the cause, or nothing is wrong."""
    if not view.behind or view.waiting or view.opaque:
        return None
    classes = sorted({state.cls for state in view.behind})
    peer = view.shared_peer
    if peer is not None:
        is_idle = is_waiting_for_clients(peer.waits_for) and all(peer.key[:2] in each.outside for each in view.states)
        need = "no action needed unless requests are pending" if is_idle else wording.check_peer(view, peer)
        text = wording.wait_for_peer(view, peer)
        return RuleResult("external", (), 0, text, (), need, is_idle or moves(view, peer))
    shared = len(classes) == 1 and classes[0] not in ("sleep", "compute")
    need = "check what they share: file system, service or lock" if shared else "sample longer"
    return RuleResult("external" if shared else "none", (), 0, wording.all_busy(view, classes), (), need)


def _unread(view: JobView, still: Stillness) -> RuleResult | None:
    """All observed ranks wait and some are not observed, which is not evidence against the unobserved ones."""
    unseen = (missing.rank for missing in view.out_of_sight if missing.rank is not None)
    hidden = sorted({*_numbers(view.unread), *view.uncaptured, *unseen})
    if not hidden or not view.waiting:
        return None
    return RuleResult("none", (), 0, wording.hidden(view, hidden), (), wording.remedy(view, hidden))


def _opaque(view: JobView, still: Stillness) -> RuleResult | None:
    """Some stacks do not show whether their ranks wait for others; native frames would."""
    if not view.opaque:
        return None
    unread = [state for state in view.opaque if not state.native]
    need = f"capture native frames of {wording.ranks(_numbers(unread))} (--native)" if unread else _SHOWN
    if view.behind and not view.waiting:
        return RuleResult("none", (), 0, wording.behind(view, view.behind), (), need)
    return RuleResult("none", (), 0, wording.opaque(view), (), need)


def _cycle(view: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that wait for each other's messages in a cycle: all of them are named."""
    rank_cycles = cycles(view.communicating)
    if not rank_cycles:
        return None
    members = map(view.state_of, sorted({rank for cycle in rank_cycles for rank in cycle}))
    return RuleResult("p2p_cycle", _named([member for member in members if member]), 2, wording.cycle(rank_cycles))


def _mismatch(view: JobView, still: Stillness) -> RuleResult | None:
    """No rank is late, but two groups wait in different operations: the smaller one may be named, never as certain.

    Refuses where the groups are equal or more than two, where both wait in the same operation, or where ranks are known
    to be in process groups of their own: those may rightly wait in different places.
    """
    groups = wait_groups(view.waiting)
    if len(groups) < 2 or view.waited_for:
        return None
    text = wording.split(view, groups)
    names = {group.operation for group in groups}
    has_minority = len(groups) == 2 and len(groups[0].ranks) > len(groups[1].ranks)
    if has_minority and len(names) == 2 and not any(map(is_in_subgroup, view.waiting)):
        minority = [state for state in view.waiting if state.rank in groups[1].ranks]
        return RuleResult("collective_mismatch", _named(minority), 1, text)
    need = "enable Flight Recorder (TORCH_FR_BUFFER_SIZE) to see which ranks are out of order"
    if _is_recorded(view):
        need = "compare the order of their collectives in the Hang view"
    return RuleResult("none", (), 0, text, (), need)


def _is_recorded(view: JobView) -> bool:
    """Whether a source of collectives covers all waiting ranks, so that advice to enable one is void."""
    waiting = set(_numbers(view.waiting))
    return any(waiting <= set(source.complete) for source in view.evidence.collectives)


def _together(view: JobView, still: Stillness) -> RuleResult | None:
    """All ranks are present and wait at one place: no rank is late, so the cause is outside of them."""
    if not view.waiting:
        return None
    if view.waited_for:
        return RuleResult(
            "none", (), 0, wording.peers(view), (), "check the processes at the ends of these connections"
        )
    need = "check Flight Recorder or NCCL RAS for size or dtype mismatches, then the network and the GPUs"
    if _is_recorded(view):
        need = "check the network and the GPUs: their collectives were read and do not differ"
    kind: Kind = "none" if view.waiting[0].cls == "p2p" else "external"
    return RuleResult(kind, (), 0, wording.together(view), (), need)


def _nothing(view: JobView, still: Stillness) -> RuleResult:
    need = wording.remedy(view, _numbers(view.unread)) if view.unread else "capture its ranks"
    if view.was_restarted:
        need = "diagnose again when its ranks have started"
    return RuleResult("none", (), 0, wording.nothing(view), (), need)


_Rule = Callable[[JobView, Stillness], "RuleResult | None"]
_RULES: Final[tuple[_Rule, ...]] = (
    _dead, _vanished, _absent, _held, _serves, _polls, _deadlock, _behind, _all_busy, _unread, _device, _opaque, _cycle,
    _mismatch, _together, _nothing,
)  # fmt: skip


def _opaque_caveats(view: JobView) -> list[str]:
    if not view.opaque:
        return []
    return [f"the stack of {wording.ranks(_numbers(view.opaque))} does not show whether it waits"]


def _edge_caveats(view: JobView) -> list[str]:
    """The ranks whose native call may be a wait for a store key, which another rank sets."""
    unsure = [
        state.rank
        for state in view.states
        if state.rank in view.waited_for and state.trace and state.trace.in_user and not state.native
        and any(target.kind in ("tcp", "unix") for target in state.waits_for)
    ]  # fmt: skip
    if not unsure:
        return []
    return [f"native frames of {wording.ranks(rank for rank in unsure if rank is not None)} were not read"]


def _named(states: Sequence[RankState]) -> tuple[tuple[int, FrameClass], ...]:
    return tuple(sorted({(state.rank, state.cls) for state in states if state.rank is not None}))


def _numbers(states: Sequence[RankState]) -> tuple[int, ...]:
    return tuple(sorted({state.rank for state in states if state.rank is not None}))
