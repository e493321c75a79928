"""What is under the cursor of the Overview: its name, also in links, and its details; and the title of the map.

`node-list/node001` is a row of a list, `heat/node001/3` the fourth GPU of a node in the map, `heat/node001` a cell that
stands for a node.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from functools import partial
from typing import Final, NamedTuple

from ....present.spans import Span
from ....text.cells import clean
from ...models.detail import PageItem
from ...models.heat_map import WHOLE_NODE, HeatMetric
from ...snapshot import ScreenSnapshot
from ...widgets.line_view import LineReport
from ..base import DetailProvider, event_in, gpu_in, job_in, node_in

#: How the names of the map's cells begin.
_MAP: Final = "heat/"


class Cell(NamedTuple):
    """A cell of the map: a node and the position of a GPU, or `WHOLE_NODE`."""

    node: str
    gpu: int


def row_name(report: LineReport, key: object) -> str:
    """The name of a row: its list, and what its key consists of."""
    return clean(f"{report.id}/{_text_of(key)}")


def cell_name(node: str, gpu: int) -> str:
    """The name of a cell of the map."""
    return clean(f"{_MAP}{node}" if gpu == WHOLE_NODE else f"{_MAP}{node}/{gpu}")


def find_row(reports: Iterable[LineReport], name: str) -> tuple[LineReport, Hashable] | None:
    """The list that has a row of that name, and the key of the row."""
    for report in reports:
        for line in report.lines:
            if line.key is not None and row_name(report, line.key) == name:
                return report, line.key
    return None


def find_cell(name: str, nodes: Container[str]) -> Cell | None:
    """The cell of that name, if it is one of these nodes."""
    named = name.removeprefix(_MAP)
    if named == name:
        return None
    if named in nodes:
        return Cell(named, WHOLE_NODE)
    node, _, gpu = named.rpartition("/")
    return Cell(node, int(gpu)) if node in nodes and gpu.isdecimal() and len(gpu) < len(str(WHOLE_NODE)) else None


def thing_name(key: object, frame: ScreenSnapshot | None, *, is_finding: bool) -> str:
    """The node, GPU or job of a row, the node of an event, or the culprits of a finding, or else its id."""
    if is_finding and isinstance(key, tuple):
        id, culprits, _ = key
        return ", ".join(culprits) or str(id)
    if isinstance(key, PageItem) and frame is not None:
        event = frame.events.find(key.key) if isinstance(key.key, int) else None
        return str(event.node if event is not None else key.key[0] if isinstance(key.key, tuple) else key.key)
    return str(key[1] if isinstance(key, tuple) else key)


def map_title(
    frame: ScreenSnapshot, metric: HeatMetric, *, has_cells: bool, is_folded: bool
) -> tuple[str, tuple[Span, ...]]:  # fmt: skip
    """The title of the map and what follows it; `is_folded`: a cell is a node."""
    if not frame.gpus and not has_cells:
        return "GPU", (Span("no data yet", "muted"),)
    if not frame.gpus:
        return "CPU", (Span("util %", "muted"), Span("   no GPU data", "muted"))
    sim = (Span(" "), Span(" SIM ", "badge-warning")) if frame.gpus.simulated else ()
    cells = (Span("  1 cell per node, worst first", "muted"),) if is_folded else ()
    return "GPU", (Span(metric.heat.title, "text"), Span(f" {metric.heat.unit}", "muted"), *cells, *sim)


def _text_of(key: object) -> str:
    if isinstance(key, PageItem):
        return _text_of(key.key)
    return "/".join(map(_text_of, key)) if isinstance(key, tuple) else "" if key is None else str(key)


def detail_of(chosen: object) -> DetailProvider | None:
    """Details of a line of the trends, the resources or the events."""
    if isinstance(chosen, PageItem):
        key = chosen.key
        if isinstance(key, int):
            return partial(event_in, number=key)
        return (
            (lambda frame: gpu_in(frame, key[0], uuid=key[1])) if isinstance(key, tuple) else partial(node_in, key=key)
        )
    if isinstance(chosen, tuple):
        return partial(job_in if chosen[0] == "job" else node_in, key=chosen[1])
    return None
