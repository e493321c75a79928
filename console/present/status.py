"""The five things a state can be, and the glyph that says the same as its colour."""

from __future__ import annotations

from typing import Literal

Status = Literal["ok", "warning", "failed", "unknown", "stale"]

GLYPHS: dict[Status, str] = {"ok": "●", "warning": "▲", "failed": "✖", "unknown": "◌", "stale": "◐"}
#: Worst first: the order in which states are counted and listed.
BY_WEIGHT: tuple[Status, ...] = ("failed", "warning", "stale", "unknown", "ok")

#: What a rank does (`RankStat.state`, and what the console adds) → how bad that is.
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


#: State of a record or a row → the word on the screen, where it is not the same.
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
    """How bad a rank's state is; unknown states are `unknown`."""
    return RANK_STATUS.get(state, "unknown")
