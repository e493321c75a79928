"""Whom a job's stillness blames: rules in their order. The first that applies decides; each says when it refuses.

The minority is not the culprit: who is *behind* is, however many they are. A rule that cannot tell says what would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..stacks.frame_models import FrameClass
from . import wording
from .deaths import first_deaths
from .job_view import HELD, JobView
from .rank_state import RankState
from .stillness import Stillness
from .verdict import Kind
from .wait_groups import cycles, is_in_subgroup, wait_groups

#: Who wakes up so often in a second may poll.
POLLS_S: Final = 0.5
#: In this order: each doubt takes one step.
CONFIDENCES: Final = ("possible", "likely", "certain")


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule says. Without `ranks` nobody is named; `kind` is then `external` or `none`."""

    kind: Kind
    ranks: tuple[tuple[int, FrameClass], ...]
    trust: int  # index in CONFIDENCES, before any doubt
    text: str  # the headline
    doubts: tuple[str, ...] = ()
    need: str = ""  # what would decide it, where nobody is named


def apply_rules(scene: JobView, still: Stillness) -> RuleResult:
    """The answer of the first rule that applies."""
    for rule in _RULES:
        found = rule(scene, still)
        if found is not None:
            return found
    raise AssertionError("the last rule always applies")


def _dead(scene: JobView, still: Stillness) -> RuleResult | None:
    """A rank that has ended while others wait for it. Several: those that ended first; the others may have followed."""
    if not scene.dead or not (scene.waiting or scene.opaque):
        return None
    first, is_sure = first_deaths(scene)
    text = wording.dead(scene, first)
    doubts = () if is_sure else ("nobody saw which of them ended first",)
    return RuleResult("rank_dead", tuple((rank, "dead") for rank in first), 2, text, doubts)


def _vanished(scene: JobView, still: Stillness) -> RuleResult | None:
    """A rank that nobody ever saw, of a job that is past its setup: it was there, so it has ended before we looked.

    Only where the others of its node are found on one that can be reached: else it may live on a node nobody named.
    """
    gone = {one.rank: scene.home(one.rank) for one in scene.not_found if one.rank is not None}
    is_set_up = any(one.cls in ("collective", "p2p") for one in scene.waiting)
    if not gone or None in gone.values() or not is_set_up or scene.behind:
        return None
    doubts = ["nobody saw it end"]
    if scene.opaque:
        doubts.append(f"the stack of {wording.ranks(_numbers(scene.opaque))} does not tell whether it waits")
    where = sorted({node for node in gone.values() if node})
    text = wording.vanished(scene, sorted(gone), where)
    return RuleResult("rank_dead", tuple((rank, "dead") for rank in sorted(gone)), 2, text, tuple(doubts))


def _absent(scene: JobView, still: Stillness) -> RuleResult | None:
    """A rank that is on no node that is watched, while those that are seen wait, and none of them is behind.

    Refuses where several are missing and every node of the list is full: they may well run on nodes nobody named.
    """
    absent = tuple(sorted(one.rank for one in scene.not_found if one.rank is not None))
    if not absent or scene.behind or not scene.waiting:
        return None
    setting_up = all(one.cls == "group_setup" for one in scene.waiting)
    if scene.out_of_sight or not (_has_room(scene) or len(absent) == 1):
        need = f"watch the nodes on which {wording.ranks(absent)} should run, or see whether they were started"
        return RuleResult("none", (), 0, wording.unseen(scene, absent), (), need)
    doubts = [] if setting_up else ["they are past the setup, so it may run on a node that is not watched"]
    if scene.opaque:
        doubts.append(f"the stack of {wording.ranks(_numbers(scene.opaque))} does not tell whether it waits")
    text = wording.absent(scene, absent)
    return RuleResult("rank_absent", tuple((rank, "missing") for rank in absent), 2, text, tuple(doubts))


def _has_room(scene: JobView) -> bool:
    """Whether a node that is watched has fewer ranks than the fullest."""
    counts = dict.fromkeys(scene.evidence.nodes, 0)
    for standing in scene.standings:
        counts[standing.node] = counts.get(standing.node, 0) + 1
    return bool(counts) and min(counts.values()) < max(counts.values())


def _held(scene: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that the kernel does not let run."""
    found = [one for one in scene.behind if one.cls in HELD and (one.last.proc_state or "") in ("T", "t", "D")]
    if not found:
        return None
    stopped = [one for one in found if one.cls != "uninterruptible"]
    kind: Kind = "rank_stopped" if stopped else "rank_blocked"
    doubts = () if scene.waiting else ("no other rank was seen to wait for others",)
    return RuleResult(kind, _named(found), 2, wording.held(scene, found), doubts)


def _behind(scene: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that are not where the others wait, in whatever number.

    Where nobody is known to wait, nobody is behind: a job of one rank aside.
    """
    if not scene.behind or not (scene.waiting or len(scene.standings) == 1):
        return None
    stuck = [one for one in scene.behind if one in still.stuck]
    found = stuck or list(scene.behind)
    doubts = []
    asleep = [one for one in stuck if not _may_poll(one)]
    if asleep and len(asleep) < len(stuck):
        pollers = _numbers([one for one in stuck if _may_poll(one)])
        doubts.append(wording.they(pollers, "wakes up now and then in its own code, and may wait by that"))
        found = asleep
    if not stuck:
        doubts += ["it goes on, so it may only take its time"] * 2
    elif any(one.runs for one in found):
        doubts.append("it computes, so it may only take its time")
    if scene.opaque:
        doubts.append(f"the stack of {wording.ranks(_numbers(scene.opaque))} does not tell whether it waits as well")
    return RuleResult("rank_missing", _named(found), 2, wording.behind(scene, found), tuple(doubts))


def _may_poll(one: RankState) -> bool:
    """Whether it may look again and again for what others do: it sleeps or computes in its own code, and wakes up."""
    in_own_code = one.trace is not None and one.trace.in_user and one.cls in ("sleep", "compute")
    return in_own_code and (one.runs or (one.wakes_s or 0.0) >= POLLS_S)


def _all_busy(scene: JobView, still: Stillness) -> RuleResult | None:
    """Every rank does something of its own: what they share may be at fault, or nothing."""
    if not scene.behind or scene.waiting or scene.opaque:
        return None
    classes = sorted({one.cls for one in scene.behind})
    shared = len(classes) == 1 and classes[0] not in ("sleep", "compute")
    text = wording.all_busy(scene, classes)
    need = "look at what they share: the file system, the service, the lock" if shared else "watch it for longer"
    return RuleResult("external" if shared else "none", (), 0, text, (), need)


def _unread(scene: JobView, still: Stillness) -> RuleResult | None:
    """Everybody who is seen waits, and somebody is not seen: that proves nothing against the unseen."""
    hidden = sorted({*_numbers(scene.unread), *(one.rank for one in scene.out_of_sight if one.rank is not None)})
    if not hidden or not scene.waiting:
        return None
    return RuleResult("none", (), 0, wording.hidden(scene, hidden), (), wording.remedy(scene, hidden))


def _opaque(scene: JobView, still: Stillness) -> RuleResult | None:
    """Some stacks do not tell whether their ranks wait for others; their native calls would."""
    if not scene.opaque:
        return None
    if scene.behind and not scene.waiting:
        need = "the native calls of those that say nothing (--native reads them)"
        return RuleResult("none", (), 0, wording.behind(scene, scene.behind), (), need)
    need = f"the native calls of {wording.ranks(_numbers(scene.opaque))} (--native reads them)"
    return RuleResult("none", (), 0, wording.opaque(scene), (), need)


def _cycle(scene: JobView, still: Stillness) -> RuleResult | None:
    """Ranks that wait for each other's messages in a circle: all of them, none more than another."""
    found = cycles(scene.waiting)
    if not found:
        return None
    members = [scene.of(rank) for rank in sorted({rank for cycle in found for rank in cycle})]
    return RuleResult("p2p_cycle", _named([member for member in members if member]), 2, wording.cycle(found))


def _mismatch(scene: JobView, still: Stillness) -> RuleResult | None:
    """Nobody is behind, but two camps wait in different operations: the smaller one may be named, never for certain.

    Refuses where the camps are equal or more than two, where both wait in the same operation, or where ranks are known
    to be in groups of their own: those may wait in different places rightly.
    """
    camps = wait_groups(scene.waiting)
    if len(camps) < 2:
        return None
    text = wording.camps(scene, camps)
    need = "a flight recorder (TORCH_FR_BUFFER_SIZE) tells which of them is out of order"
    names = {camp.operation for camp in camps}
    has_minority = len(camps) == 2 and len(camps[0].ranks) > len(camps[1].ranks)
    if has_minority and len(names) == 2 and not any(is_in_subgroup(one) for one in scene.waiting):
        small = [one for one in scene.waiting if one.rank in camps[1].ranks]
        return RuleResult("collective_mismatch", _named(small), 1, text)
    return RuleResult("none", (), 0, text, (), need)


def _together(scene: JobView, still: Stillness) -> RuleResult | None:
    """All ranks are there and wait at one place: nobody is behind, so it is none of them."""
    if not scene.waiting:
        return None
    need = "a flight recorder or NCCL RAS tells whether sizes or types differ; the network and the GPUs are next"
    if scene.waiting[0].cls == "p2p":
        return RuleResult("none", (), 0, wording.together(scene), (), need)
    return RuleResult("external", (), 0, wording.together(scene), (), need)


def _nothing(scene: JobView, still: Stillness) -> RuleResult:
    need = wording.remedy(scene, _numbers(scene.unread)) if scene.unread else "a capture of its ranks"
    return RuleResult("none", (), 0, wording.nothing(scene), (), need)


_Rule = Callable[[JobView, Stillness], "RuleResult | None"]
_RULES: Final[tuple[_Rule, ...]] = (
    _dead, _vanished, _absent, _held, _behind, _all_busy, _unread, _opaque, _cycle, _mismatch, _together, _nothing,
)  # fmt: skip


def _named(standings: Sequence[RankState]) -> tuple[tuple[int, FrameClass], ...]:
    return tuple(sorted({(standing.rank, standing.cls) for standing in standings if standing.rank is not None}))


def _numbers(standings: Sequence[RankState]) -> tuple[int, ...]:
    return tuple(sorted({standing.rank for standing in standings if standing.rank is not None}))
