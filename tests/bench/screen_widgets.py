"""Cost of a frame of the large widgets, from new rows to terminal output, compared with a DataTable.

The DataTable does the same work: it shows the same values, and each frame updates all changed ones, with fixed
column widths. Each is alone on a headless screen, in one process, in turns.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import DataTable

from gconsole.present.spans import Span
from gconsole.tui.base_app import BaseApp
from gconsole.tui.models.heat_map import LEVELS, HeatCell, HeatRow
from gconsole.tui.widgets.heat_map import HeatMap
from gconsole.tui.widgets.record_grid import GridColumn, RecordGrid
from tests.bench.headless_screen import STYLES, PaintCounter, frame

from .process import in_new_process
from .result import Outcome, Row

T = TypeVar("T")

SIZE = (200, 60)
FIGURES = 10
FRAMES, PEER_FRAMES = 60, 5
LIVE_ROWS, MANY_ROWS = 4_096, 100_000
GPUS = 8
#: Cells of a heat map, and the limit for a frame of it, in ms.
HEAT_GOALS = {512: 5.0, 4_096: 10.0, 8_192: 15.0}
GRID_GOAL_MS = 16.0


@dataclass(frozen=True)
class Figures:
    """A row of the grid: ten values, which change in each frame."""

    key: int
    values: tuple[float, ...]
    version: int = 0
    banner: tuple[Span, ...] | None = None
    note: Span | None = None


COLUMNS: list[GridColumn[Figures]] = [
    GridColumn("key", "key", 8, lambda row: Span(str(row.key)), align="right", leads=True),
    *(
        GridColumn[Figures](
            f"v{index}", f"value {index}", 8, lambda row, index=index: Span(f"{row.values[index]:.1f}"), align="right"
        )  # type: ignore[misc]
        for index in range(FIGURES)
    ),
]


class SingleWidgetApp(PaintCounter, BaseApp):
    """An app with one widget."""

    CSS_PATH = STYLES

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget


def measure(quick: bool) -> Outcome:
    frames, peer_frames = (10, 2) if quick else (FRAMES, PEER_FRAMES)
    many = 10_000 if quick else MANY_ROWS
    rows = [
        _row(f"RecordGrid, {LIVE_ROWS:,} rows, all figures new", GRID_GOAL_MS,
             in_new_process(_live_grid, frames, peer_frames)),
        _row(f"RecordGrid, a page down in {many:,} rows", GRID_GOAL_MS, in_new_process(_scrolled, many, frames)),
    ]  # fmt: skip
    for cells, goal in HEAT_GOALS.items():
        times_ms = in_new_process(_heat, cells, frames, peer_frames)
        rows.append(_row(f"HeatMap, {cells:,} cells, all new", goal, times_ms))
    return Outcome(
        rows,
        [
            "milliseconds are CPU of the one thread that draws: what a frame takes on a core of its own",
            f"one frame at {SIZE[0]}x{SIZE[1]}, headless: `show` with rows made before, layout, and the painted strips"
            f" as text for the terminal; medians and the 95th percentile of {frames} frames in a process of its own",
            f"the grid has {FIGURES} columns of figures; DataTable: update_cell for each figure, update_width off, then"
            f" the same paint ({peer_frames} frames; for scrolling, {frames})",
        ],
    )  # fmt: skip


def _row(name: str, goal_ms: float, times_ms: tuple[list[float], list[float]]) -> Row:
    ours, peers = times_ms
    middle, peer = statistics.median(ours), statistics.median(peers)
    slowest = sorted(ours)[int(len(ours) * 0.95) - 1]
    return Row(
        name, f"{middle:.1f} ms a frame (p95 {slowest:.1f})", f"≤ {goal_ms:g} ms", middle <= goal_ms,
        f"DataTable {peer:.0f} ms", middle / peer,
    )  # fmt: skip


def _live_grid(frames: int, peer_frames: int) -> tuple[list[float], list[float]]:
    def rows(frame: int) -> list[Figures]:
        chance = random.Random(frame)
        return [Figures(key, tuple(chance.uniform(0, 100) for _ in range(FIGURES)), frame) for key in range(LIVE_ROWS)]

    grid: RecordGrid[Figures] = RecordGrid(COLUMNS)
    ours = asyncio.run(_frames(grid, [rows(index % 4 + index) for index in range(frames)], grid.show))
    table: DataTable[str] = DataTable()
    texts = [[[f"{value:.1f}" for value in row.values] for row in rows(index)] for index in range(peer_frames + 1)]
    return ours, asyncio.run(_frames(table, texts[1:], lambda new: _update(table, new), lambda: _fill(table, texts[0])))


def _scrolled(count: int, frames: int) -> tuple[list[float], list[float]]:
    rows = [Figures(key, tuple(float(key % 97 + index) for index in range(FIGURES))) for key in range(count)]
    grid: RecordGrid[Figures] = RecordGrid(COLUMNS)
    page = SIZE[1] - 2
    steps = [index * page for index in range(1, frames + 1)]

    def scroll(widget: DataTable[str] | RecordGrid[Figures]) -> Callable[[int], None]:
        return lambda y: widget.scroll_to(y=y, animate=False, immediate=True, force=True)

    ours = asyncio.run(_frames(grid, steps, scroll(grid), lambda: grid.show(rows)))
    table: DataTable[str] = DataTable()
    texts = [[f"{value:.1f}" for value in row.values] for row in rows]
    return ours, asyncio.run(_frames(table, steps, scroll(table), lambda: _fill(table, texts)))


def _heat(cells: int, frames: int, peer_frames: int) -> tuple[list[float], list[float]]:
    nodes = cells // GPUS
    names = [f"node{node:04}" for node in range(nodes)]

    def rows(frame: int) -> list[HeatRow]:
        chance = random.Random(frame)
        levels = [[chance.randrange(LEVELS) for _ in range(GPUS)] for _ in names]
        return [
            HeatRow(name, "ok", tuple(HeatCell(str(level), level) for level in row))
            for name, row in zip(names, levels, strict=True)
        ]

    heat = HeatMap()
    ours = asyncio.run(_frames(heat, [rows(index) for index in range(frames)], lambda new: heat.show(new, "load")))
    table: DataTable[str] = DataTable()
    texts = [[[cell.text for cell in row.cells] for row in rows(index)] for index in range(peer_frames + 1)]
    return ours, asyncio.run(_frames(table, texts[1:], lambda new: _update(table, new), lambda: _fill(table, texts[0])))


def _fill(table: DataTable[str], rows: Sequence[Sequence[str]]) -> None:
    for index in range(len(rows[0])):
        table.add_column(f"value {index}", key=str(index), width=8)
    for key, row in enumerate(rows):
        table.add_row(*row, key=str(key))


def _update(table: DataTable[str], rows: Sequence[Sequence[str]]) -> None:
    for key, row in enumerate(rows):
        for index, value in enumerate(row):
            table.update_cell(str(key), str(index), value, update_width=False)


async def _frames(
    widget: Widget, steps: Sequence[T], show: Callable[[T], None], fill: Callable[[], None] = lambda: None
) -> list[float]:
    """CPU time of each frame in ms; the first frame is painted before the measurement."""
    app = SingleWidgetApp(widget)
    async with app.run_test(size=SIZE) as pilot:
        fill()
        await pilot.pause()
        gc.collect()
        gc.freeze()  # the rows of all frames exist already; a console has no such objects for the collector
        taken = []
        for step in steps:
            began = time.thread_time()
            show(step)
            await frame(app)
            taken.append(1000 * (time.thread_time() - began))
            await pilot.pause(0)
    return taken[1:] if len(taken) > 2 else taken
