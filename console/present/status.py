"""The five statuses with their glyphs, and display words of states and confidences."""

from __future__ import annotations

from typing import Literal

Status = Literal["ok", "warning", "failed", "unknown", "stale"]

GLYPHS: dict[Status, str] = {"ok": "●", "warning": "▲", "failed": "✖", "unknown": "◌", "stale": "◐"}
#: Order in which statuses are counted and listed, worst first.
BY_WEIGHT: tuple[Status, ...] = ("failed", "warning", "stale", "unknown", "ok")

#: State of a rank (`RankStat.state`, and those the console adds) → status.
RANK_STATUS: dict[str, Status] = {
    "moving": "ok",
    "waiting": "warning",
    "idle": "warning",
    "uninterruptible": "warning",
    "stuck": "failed",
    "stopped": "failed",
    "zombie": "failed",
    "exited": "failed",
    "no_permission": "warning",
    "stale": "stale",
    "lost": "stale",
    "missing": "unknown",
    "unknown": "unknown",
}
SEVERITY_STATUS: dict[str, Status] = {"error": "failed", "warning": "warning", "info": "unknown"}


#: Display words of states that differ from the record.
_STATE_WORDS = {
    "moving": "running",
    "idle": "waiting",
    "uninterruptible": "D state",
    "expected": "pending",
    "found": "discovered",
    "held down": "throttled",
}


def state_word(state: str) -> str:
    """A state as the screen shows it: `running` for `moving`, underscores as blanks."""
    return _STATE_WORDS.get(state) or state.replace("_", " ")


#: Display words of confidences; a verdict from samples is never certain.
_CONFIDENCE_WORDS = {"certain": "high", "likely": "medium", "possible": "low"}


def confidence_word(confidence: str) -> str:
    """A confidence as the screen shows it: `high` for `certain`."""
    return _CONFIDENCE_WORDS.get(confidence, confidence)


def rank_status(state: str) -> Status:
    """Status of a rank's state; `unknown` for other states."""
    return RANK_STATUS.get(state, "unknown")
