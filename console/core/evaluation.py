"""Evaluation of one expression in the process of a rank: its request and result.

`Control` does not have it: neither HTTP nor MCP can reach it.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec

from ..records import Failure

#: Seconds that the main thread has to reach a point between two bytecodes, unless the user sets another time.
WAIT_S: Final = 5.0
#: Characters of a result.
MAX_TEXT: Final = 32_768


class RankProcess(NamedTuple):
    """The process of a rank."""

    node: str
    job: str
    rank: int
    pid: int
    start_ticks: int

    @property
    def description(self) -> str:
        """`rank 5 of train (node1, pid 7)`; not sanitised."""
        return f"rank {self.rank} of {self.job} ({self.node}, pid {self.pid})"


class Evaluated(msgspec.Struct, frozen=True):
    """The result as the rank wrote it; nothing of it is verified."""

    outcome: Literal["value", "error"]
    type: Annotated[str, msgspec.Meta(max_length=100)]  # of the value, or of the exception
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]  # repr of the value, or message of the exception
    place: Annotated[str, msgspec.Meta(max_length=300)] | None  # file, line and function whose variables were used
    way: Literal["gdb", "remote_exec"]  # a debugger, or sys.remote_exec
    paused_s: float  # for which the process was paused by the debugger, at most

    @property
    def value_text(self) -> str:
        """The value, or the exception with its type; not sanitised."""
        return self.text if self.outcome == "value" else f"{self.type}: {self.text}"

    @property
    def circumstances(self) -> str:
        """` at train.py:3 main: bool; gdb paused it for 0.2 s at most`, for after the process; not sanitised."""
        place = f" at {self.place}" if self.place else ""
        how = f"gdb paused it for {self.paused_s:.1f} s at most" if self.way == "gdb" else "by sys.remote_exec"
        return f"{place}: {self.type}; {how}"


def is_statement(text: str) -> bool:
    """Whether a text is Python, but no expression. What this Python cannot parse may be one of a newer Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escape sequences, say; they would be printed over the screen
        try:
            compile(text.strip(), "<expression>", "exec")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
        try:
            compile(text.strip(), "<expression>", "eval")
        except SyntaxError:
            return True
    return False


class Evaluator(Protocol):
    """Evaluates expressions on the nodes that allow it."""

    def allows(self, node: str) -> bool:
        """Whether `[agent] allow_eval` is set for this node."""

    async def evaluate(self, rank: RankProcess, expression: str, timeout_s: float) -> Evaluated | Failure:
        """Evaluate an expression in a rank, and publish what was done as `log` records with source `eval`."""
