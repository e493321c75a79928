"""Nodes with clock errors: the test's bundle reads each node's clocks with a known error.

The product has no hook for this. The nodes get the product's own agent with another `clock.py`: the
product's, followed by a table of errors by host name. This works only for nodes with their own host names.
Timestamps of a job are shifted by a proxy of its worker server (`jobs/clock_proxy.py`).

As a program, `skewed_clocks.py PACKAGE batch …` is `gconsole batch …` with that agent.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gconsole.cli.main import main
from gconsole.fleet.deploy import agent_payload
from gconsole_remote.clocks import stamps

_ERRORS = """

import os as _os
from types import FunctionType as _FunctionType

_OFFSET, _PPB = {table}.get(_os.uname().nodename, (0, 0))
_EPOCH = {epoch}
_true, _plain = _read, _FunctionType(mono_of_kernel.__code__, dict(globals()))  # reads the true clocks for ever


def _ahead(raw):
    return _OFFSET + (raw - _EPOCH) * _PPB // 1000000000


def _read(clock):
    now = _true(clock)
    if clock == _RAW:
        return now + _ahead(now)
    while True:  # until the process was not preempted between the two clocks: the error drifts meanwhile
        before, now, after = _true(_RAW), _true(clock), _true(_RAW)
        if after - before < 50000:
            return now + _ahead(before)


def mono_of_kernel(stamp):
    raw = _plain(stamp)
    return raw + _ahead(raw)
"""


@dataclass(frozen=True)
class ClockError:
    """The error of all clocks of one node: an offset at the epoch, and a rate."""

    offset_ns: int = 0
    ppb: int = 0  # ns per second


@dataclass(frozen=True)
class ClockErrors:
    """The errors since `epoch` (MONOTONIC_RAW of this machine, which all nodes share)."""

    epoch: int
    errors: Mapping[str, ClockError]

    def ahead(self, node: str, raw: int) -> float:
        """The offset of a node's clocks from this machine's at that instant, ns."""
        wrong = self.errors.get(node, ClockError())
        return wrong.offset_ns + (raw - self.epoch) * wrong.ppb / 1e9

    def offset_between_ns(self, near: str, far: str, near_raw: int) -> float:
        """The offset of the far clock from the near one when the near one reads `near_raw`, ns."""
        wrong = self.errors.get(near, ClockError())
        raw = self.epoch + (near_raw - self.epoch - wrong.offset_ns) / (1 + wrong.ppb / 1e9)
        return self.ahead(far, int(raw)) - self.ahead(near, int(raw))

    def true_realtime_ns(self, node: str, stamp: int) -> float:
        """The true CLOCK_REALTIME when the node's clock with its error reads `stamp`."""
        wrong = self.errors.get(node, ClockError())
        raw_of_real = stamps.mono_ns() - stamps.realtime_ns()
        ahead = wrong.offset_ns + (stamp - wrong.offset_ns + raw_of_real - self.epoch) * wrong.ppb / 1e9
        return stamp - ahead

    def variables(self) -> dict[str, str]:
        """Environment of a job whose timestamps have the same errors."""
        nodes = {node: (wrong.offset_ns, wrong.ppb) for node, wrong in self.errors.items()}
        return {"CLOCKS": json.dumps({"epoch": self.epoch, "nodes": nodes})}


def copy_with_wrong_clock(package: Path, errors: Mapping[str, ClockError], kernel_stamps: bool = True) -> ClockErrors:
    """Copy the agent's package to that path, with clock errors by host name.

    Without `kernel_stamps` its sockets request an unknown option, as on a kernel without receive timestamps.
    """
    epoch = stamps.mono_ns()
    source = Path(stamps.__file__).parents[1]
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = {node: (wrong.offset_ns, wrong.ppb) for node, wrong in errors.items()}
    with (package / "clocks" / "stamps.py").open("a") as file:
        file.write(_ERRORS.format(table=repr(table), epoch=epoch))
    if not kernel_stamps:
        with (package / "clocks" / "udp_socket.py").open("a") as file:
            file.write("\n_SO_TIMESTAMPNS = 9999\n")
    return ClockErrors(epoch, dict(errors))


@contextmanager
def wrong_clocks(folder: Path, errors: Mapping[str, ClockError], kernel_stamps: bool = True) -> Iterator[ClockErrors]:
    """All agents started inside the block have these clock errors."""
    package = folder / "gconsole_remote"
    clock_errors = copy_with_wrong_clock(package, errors, kernel_stamps)
    with _agent_package(package):
        yield clock_errors


@contextmanager
def _agent_package(package: Path) -> Iterator[None]:
    own = agent_payload._package_dir
    agent_payload._built.cache_clear()
    agent_payload._package_dir = lambda name: package if name == "gconsole_remote" else own(name)
    try:
        yield
    finally:
        agent_payload._package_dir = own
        agent_payload._built.cache_clear()


if __name__ == "__main__":
    with _agent_package(Path(sys.argv.pop(1))):
        main()
