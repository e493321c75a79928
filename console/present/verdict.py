"""A verdict as people read it: who, where, the proof, and what to do next."""

from __future__ import annotations

from typing import Final

from ..analysis.hang.verdict import Culprit, State, Verdict

_GLYPHS: Final[dict[State, str]] = {"hung": "✖", "slow": "▲", "undecided": "◌", "moving": "●", "no_ranks": "◌"}


def to_text(verdict: Verdict, width: int = 110) -> str:
    """The verdict, its culprits, its evidence and the next step, a line each; lines are not folded."""
    head = f"{_GLYPHS[verdict.state]} {verdict.state}"
    head += f"  {verdict.kind}" if verdict.kind != "none" else ""
    head += f"  {verdict.job}"
    if verdict.confidence != "none":
        right = f"confidence: {verdict.confidence}"
        head += right.rjust(max(len(right) + 2, width - len(head)))
    lines = [head, f"  {verdict.summary}"]
    lines += [f"  {_culprit(culprit)}" for culprit in verdict.culprits]
    for number, line in enumerate(verdict.evidence):
        lines.append(f"  {'evidence' if number == 0 else '':8s}  {line}")
    lines.append(f"  {'next':8s}  {verdict.next_step}")
    return "\n".join(lines)


def _culprit(culprit: Culprit) -> str:
    words = [f"rank {culprit.rank}", culprit.node or "no node"]
    words += [f"pid {culprit.pid}"] if culprit.pid is not None else []
    text = " · ".join([*words, culprit.class_])
    if culprit.site is not None:
        file = culprit.site.file.rsplit("/", 1)[-1]
        text += f"  in  {file}:{culprit.site.line} {culprit.site.function}"
        text += f"  →  {culprit.site.source}" if culprit.site.source else ""
    return text
