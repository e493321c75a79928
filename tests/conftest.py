"""Shared by all groups: a state folder of their own, less frequent garbage collection, no deadline for examples."""

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

#: Consoles of tests keep their state, and their black boxes, apart from those of the user.
_STATE = tempfile.mkdtemp(prefix="gconsole-tests-state-")
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE


@pytest.fixture(scope="session")
def needs_gdb_calls() -> None:
    """Skip where gdb cannot call a function in a process: 13 cannot write the registers of a CPU with AMX."""
    words = (
        subprocess.run(["gdb", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0].split()
    )
    if " amx_tile" in Path("/proc/cpuinfo").read_text() and int(words[-1].split(".")[0]) < 16:
        pytest.skip(f"gdb {words[-1]} cannot call functions on a CPU with AMX")


def pytest_collection_finish() -> None:
    """Freeze imported objects: with many modules loaded, collecting them takes an eighth of the run time.

    Hypothesis' deadline of 200 ms an example is a timing assertion, which a busy machine fails.
    """
    if "hypothesis" in sys.modules:
        from hypothesis import settings

        settings.register_profile("without_deadline", settings.default, deadline=None)
        settings.load_profile("without_deadline")
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Collect once and freeze: pytest collects five times after this, which takes seconds after many apps.

    At exit everything can be collected again, otherwise DuckDB reports imported objects as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
