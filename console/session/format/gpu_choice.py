"""Choice of GPUs by number, on all nodes or on one: `0-3`, `node2:7`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...core.bus import Published
from ...records import Gpu, GpuClock, GpuDigest, GpuEvent, GpuInfo, GpuLink, GpuProcess
from .layout import SessionError

#: Records about one GPU.
_GPU_RECORDS: Final = (Gpu, GpuClock, GpuDigest, GpuEvent, GpuInfo, GpuLink, GpuProcess)
_WORD: Final = re.compile(r"(?:(?P<node>[^\s:]+):)?(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?")


class GpuChoice:
    """The chosen GPUs; records that are not about one GPU always match."""

    def __init__(self, words: Iterable[str]) -> None:
        """Parse words such as `0-3` and `node2:7`. Raises SessionError."""
        self._numbers: set[tuple[str, int]] = set()  # node or "" for all nodes, number
        for word in words:
            match = _WORD.fullmatch(word)
            if match is None or int(match["last"] or match["first"]) < int(match["first"]):
                raise SessionError(f"--gpus: {word!r} is not a GPU or a range of GPUs; use 0-3 or node2:7")
            numbers = range(int(match["first"]), int(match["last"] or match["first"]) + 1)
            self._numbers.update((match["node"] or "", number) for number in numbers)

    def matches(self, record: Published, node: str) -> bool:
        """Whether a record of this node is about a chosen GPU, or about none."""
        if not self._numbers or not isinstance(record, _GPU_RECORDS):
            return True
        return record.index is None or not self._numbers.isdisjoint({("", record.index), (node, record.index)})
