"""Writes a rank's collectives to a file in the format of PyTorch's Flight Recorder.

Part of the program `ring.py`: standard library only. The values are measured.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Newest operations kept.
KEPT = 64


class FlightRecorder:
    """Replaces the file after each collective, so that a reader always gets a complete one."""

    def __init__(self, path: Path, world_size: int) -> None:
        self._path, self._draft = path, path.with_name(path.name + ".new")
        self._group = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world_size)))}}
        self._entries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._number = 0

    @contextmanager
    def entered(self, numel: int) -> Iterator[None]:
        """Context of one all_reduce of `numel` numbers."""
        entry: dict[str, Any] = {
            "record_id": self._number, "pg_id": 0, "process_group": ["0", "default_pg"],
            "collective_seq_id": self._number + 1, "op_id": self._number + 1, "profiling_name": "ring:all_reduce",
            "input_sizes": [[numel]], "output_sizes": [[numel]], "input_dtypes": ["Double"],
            "output_dtypes": ["Double"], "is_p2p": False, "state": "scheduled", "retired": False,
            "time_created_ns": time.time_ns(),
        }  # fmt: skip
        self._number += 1
        self._entries.append(entry)
        yield
        entry.update(state="completed", retired=True, time_discovered_completed_ns=time.time_ns())
        self._write()

    def _write(self) -> None:
        dump = {"version": "2.10", "pg_config": self._group, "entries": list(self._entries)}
        self._draft.write_text(json.dumps(dump), encoding="utf-8")
        self._draft.replace(self._path)
