"""One task of a Slurm step that reaches all nodes of a job: runs the agent of its node for the console.

All tasks have the same standard input, so each acts on what is for it. srun labels and merges the lines of their
output, and slurmstepd cuts a line that is longer than 1,024 bytes: the frames travel in short lines.
"""

import binascii
import json
import os
import sys

from . import endings, frames, gateway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from typing import NoReturn

    from ..agent.cache import Cache
    from ..samplers.base import Fields

#: Begins a line of frames.
MARK = b"="
#: Bytes in one line: 960 in base64.
_LINE = 720


class StepTask(gateway.Gateway):
    """The streams of this task's node."""

    def __init__(self, start: "Fields", place: "Cache") -> None:
        gateway.Gateway.__init__(self, start, place)
        self._task = int(os.environ["SLURM_PROCID"])

    def _hello(self) -> "Fields":
        hello = gateway.Gateway._hello(self)
        hello["node"] = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        return hello

    def _act(self, kind: int, number: int, payload: bytes) -> None:
        is_other = (kind == frames.PING and number != self._task) or (
            kind == frames.OPEN and json.loads(payload.decode("utf-8"))["task"] != self._task
        )
        if not is_other:
            gateway.Gateway._act(self, kind, number, payload)
        elif kind == frames.OPEN:
            self._highest = max(self._highest, number)

    def _cached(self, digest: str, size: int) -> "bytes | None":
        return None  # the console sends a blob to all tasks without asking

    def _confirm(self, number: int, *, has_blob: bool) -> None:
        pass

    def _packed(self, data: bytes) -> bytes:
        packed = gateway.Gateway._packed(self, data)
        pieces = (packed[start : start + _LINE] for start in range(0, len(packed), _LINE))
        return b"".join(MARK + binascii.b2a_base64(piece) for piece in pieces)


def run(stdin: "BufferedReader", start: "Fields", place: "Cache") -> "NoReturn":
    """Serve the console, then end the process: with status 1 unless the console has ended it."""
    endings.end_on_signals()
    os.set_blocking(0, False)
    task = StepTask(start, place)
    status = 1
    try:
        ended = task.run(stdin.peek())
        status = 0 if ended.is_orderly else 1
        if status:
            sys.stderr.write("gconsole: the step's task ends: %s\n" % ended)
            sys.stderr.flush()
    finally:
        os._exit(status)
