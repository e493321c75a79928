"""Artificially delayed links between nodes, and the clock bounds that real agents measure over them."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rig import Node, RigUnavailable
from skewed_clocks import ClockErrors

from gconsole.analysis.clock.pair_bounds import EdgeWindow, edge_window
from gconsole.records import ClockBins

_SOURCE = Path(__file__).with_name("delay_relay.c")
RelayArguments = Sequence[object]


@cache
def _program() -> Path:
    """The relay, compiled once per process. Raises RigUnavailable if that fails."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RigUnavailable("no C compiler for the delay relay")
    folder = tempfile.mkdtemp(prefix="gconsole-way-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder, "delay_relay")
    subprocess.run([compiler, "-O2", "-Wall", "-o", str(target), str(_SOURCE), "-lm"], check=True)
    return target


@contextmanager
def delayed_one_way(node: Node, peer: Node, arguments: RelayArguments, seed: int = 1) -> Iterator[None]:
    """Delay the packets from `node` to `other` as `words` specify (see delay_relay.c), not the reverse direction."""
    if not (node.folder / "delay_relay").exists():
        shutil.copy(_program(), node.folder / "delay_relay")  # each node has its own /tmp
    argv = [f"{node.inside}/delay_relay", "eth0", node.address, peer.address, str(seed), *map(str, arguments)]
    with node.run(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n", f"{node.name}: no relay"
            yield
        finally:
            program.stdin.close()
            program.wait(10.0)


@contextmanager
def delayed_both_ways(
    node: Node, peer: Node, there: RelayArguments, back: RelayArguments, seed: int = 1
) -> Iterator[None]:
    """Delay both directions between two nodes."""
    with ExitStack() as stack:
        stack.enter_context(delayed_one_way(node, peer, there, 2 * seed))
        stack.enter_context(delayed_one_way(peer, node, back, 2 * seed + 1))
        yield


@dataclass(frozen=True)
class CheckedWindow:
    """A measured window of one edge, and the known clock errors; errors in ns."""

    window: EdgeWindow
    records: list[ClockBins]
    clock_errors: ClockErrors

    @property
    def ends(self) -> tuple[int, int]:
        half = self.window.width_ns // 2
        return self.window.x0 - half, self.window.x0 + half

    @property
    def instants(self) -> tuple[int, int, int]:
        return self.ends[0], self.window.x0, self.ends[1]

    @property
    def edge_error_ns(self) -> float:
        """The largest error of the line within the window."""
        return max(
            abs(self.window.y0 + self.window.at(instant_ns)[1] - self._true_offset_ns(instant_ns))
            for instant_ns in self.instants
        )

    @property
    def peer_error_ns(self) -> float:
        """The same for the usual estimate: the midpoint of the exchange with the minimum RTT, for the whole window."""
        _, offset = min(
            (exchange.rtt, record.ahead + exchange.ahead - exchange.rtt / 2)
            for record in self.records for row in record.bins for exchange in row.best
        )  # fmt: skip
        return max(abs(offset - self._true_offset_ns(instant_ns)) for instant_ns in self.instants)

    @property
    def is_covered(self) -> bool:
        """Whether the true offset is within the bound at both ends and in the middle; true without a bound."""
        if self.window.region is None:
            return True
        return all(low <= self._true_offset_ns(instant_ns) - self.window.y0 <= high
                   for instant_ns in self.instants for low, _, high in [self.window.at(instant_ns)])  # fmt: skip

    def _true_offset_ns(self, instant_ns: int) -> float:
        return self.clock_errors.offset_between_ns(self.window.src, self.window.dst, instant_ns)


def checked_windows(records: Sequence[ClockBins], clock_errors: ClockErrors, window_s: int = 4) -> list[CheckedWindow]:
    """All complete windows of each edge, cut consecutively from its records."""
    by_edge: dict[tuple[str, str], list[ClockBins]] = {}
    for record in records:
        by_edge.setdefault((record.node, record.dst), []).append(record)
    checked = []
    for edge in by_edge.values():
        part: list[ClockBins] = []
        for record in sorted(edge, key=lambda entry: entry.base):
            part.append(record)
            if sum(len(entry.bins) * entry.bin_ms for entry in part) >= window_s * 1000:
                checked.append(CheckedWindow(edge_window(part), part, clock_errors))
                part = []
    return checked
