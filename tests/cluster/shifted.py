"""Nodes whose clocks are wrong on purpose: the bundle of the test reads each node's clocks through a known error.

The product has no such hook. What travels to the nodes is the product's own agent with another `clock.py`: the
product's, followed by a table of errors by host name. Only nodes with a host name of their own can be told apart so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gconsole.fleet import bundle
from gconsole_remote import clock

_ERRORS = '''

import os as _os

_OFFSET, _PPB = {table}.get(_os.uname().nodename, (0, 0))
_EPOCH = {epoch}
_true, _plain = _read, mono_of_kernel


def _ahead(raw):
    return _OFFSET + (raw - _EPOCH) * _PPB // 1000000000


def _read(clock):
    raw = _true(_RAW)
    return _true(clock) + _ahead(raw)


def mono_of_kernel(stamp):
    raw = _plain(stamp)  # its own reads are all wrong by the same, which cancels out
    return raw + _ahead(raw)
'''


#: What the ranks stamp themselves they stamp with their node's CLOCK_REALTIME, which here is everybody's: their dumps
#: are read as if it had the node's error, too.
_STAMPS = '''

import time as _time

from .. import clock as _clock

_instant = instant


def instant(value):
    real = _instant(value)
    if not real:
        return real
    behind = _clock._true(_time.CLOCK_REALTIME) - real
    return real + _clock._ahead(_clock._true(_clock._RAW) - behind)
'''


@dataclass(frozen=True)
class Wrong:
    """How wrong all clocks of one node are: by so much at the epoch, and by so much more each second."""

    offset_ns: int = 0
    ppb: int = 0  # ns per second


@dataclass(frozen=True)
class Truth:
    """The errors in force, since `epoch` (MONOTONIC_RAW of this machine, which all nodes share)."""

    epoch: int
    errors: Mapping[str, Wrong]

    def ahead(self, node: str, raw: int) -> float:
        """By how much a node's clocks are ahead of this machine's at that instant of it, ns."""
        wrong = self.errors.get(node, Wrong())
        return wrong.offset_ns + (raw - self.epoch) * wrong.ppb / 1e9

    def between(self, near: str, far: str, near_raw: int) -> float:
        """By how much the far clock is ahead when the near one reads that, ns."""
        wrong = self.errors.get(near, Wrong())
        raw = self.epoch + (near_raw - self.epoch - wrong.offset_ns) / (1 + wrong.ppb / 1e9)
        return self.ahead(far, int(raw)) - self.ahead(near, int(raw))


def copy_with_wrong_clock(package: Path, errors: Mapping[str, Wrong], kernel_stamps: bool = True) -> Truth:
    """The agent's package at that place, with clocks that are wrong by host name.

    Without `kernel_stamps` its sockets ask for an option that no kernel has, as on one that does not stamp arrivals.
    """
    epoch = clock.mono_ns()
    source = Path(clock.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = {node: (wrong.offset_ns, wrong.ppb) for node, wrong in errors.items()}
    with (package / "clock.py").open("a") as file:
        file.write(_ERRORS.format(table=repr(table), epoch=epoch))
    with (package / "flight" / "trace.py").open("a") as file:
        file.write(_STAMPS)
    if not kernel_stamps:
        with (package / "clocks" / "port.py").open("a") as file:
            file.write("\n_SO_TIMESTAMPNS = 9999\n")
    return Truth(epoch, dict(errors))


@contextmanager
def wrong_clocks(folder: Path, errors: Mapping[str, Wrong], kernel_stamps: bool = True) -> Iterator[Truth]:
    """Every agent that is started within reads its clocks wrongly, as told."""
    package = folder / "gconsole_remote"
    own = bundle._package_dir
    truth = copy_with_wrong_clock(package, errors, kernel_stamps)
    bundle.build.cache_clear()
    bundle._package_dir = lambda name: package if name == "gconsole_remote" else own(name)
    try:
        yield truth
    finally:
        bundle._package_dir = own
        bundle.build.cache_clear()
