"""What a rank does by the place of its main thread in a light stack sample: waiting, compiling, evaluating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from ..records import StackFrame
from .hang.rank_state import WAITING
from .stacks.frame_models import FrameClass
from .stacks.frames import Reader, is_library, long_work

#: What a rank is busy with apart from training.
Activity = Literal["compiling", "checkpointing", "starting", "evaluating"]
ACTIVITIES: Final[Mapping[FrameClass, Activity]] = {
    "compile": "compiling", "checkpoint_io": "checkpointing", "group_setup": "starting", "import": "starting",
}  # fmt: skip
#: Activities that take long without any sign of progress.
PATIENT: Final[frozenset[Activity]] = frozenset({"compiling", "checkpointing", "starting"})
#: A module that is imported runs below this file, also the job's own.
_IMPORTS: Final = "<frozen importlib._bootstrap"
#: Classes in which a rank waits for others, or for data.
_WAITS: Final = WAITING | {"dataloader", "device_wait"}


class PlaceFacts(msgspec.Struct, frozen=True):
    """The meaning of one place."""

    cls: FrameClass | None  # of the innermost call that a frame model matches
    activity: Activity | None
    waits: bool  # in a collective, for a message, for data, for a device
    text: str  # `train.py:88 step`


def place_facts(frames: Sequence[StackFrame], reader: Reader) -> PlaceFacts:
    """The facts of a place, from its innermost frames, outermost first."""
    trace = reader.trace(tuple(frames))
    cls = trace.cls
    activity = ACTIVITIES.get(cls) if cls is not None else None
    if activity is None and any(frame.file.startswith(_IMPORTS) for frame in frames):
        activity = "starting"
    if activity is None:
        activity = next(filter(None, map(long_work, reversed(frames))), None)
    return PlaceFacts(cls, activity, cls in _WAITS, _text(frames))


def own_call(frames: Sequence[StackFrame] | None) -> tuple[str, str] | None:
    """(function, file) of the innermost call in the job's own code; of the innermost one where none is its own."""
    frame = _own(frames or ())
    return (frame.function, frame.file) if frame is not None else None


def _own(frames: Sequence[StackFrame]) -> StackFrame | None:
    own = next((frame for frame in reversed(frames) if not is_library(frame.file)), None)
    return own or (frames[-1] if frames else None)


def _text(frames: Sequence[StackFrame]) -> str:
    frame = _own(frames)
    if frame is None:
        return ""
    return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} {frame.function.rsplit('.', 1)[-1]}"
