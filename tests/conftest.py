"""Shared by all groups: a state folder of their own, less frequent garbage collection, no deadline for examples."""

import atexit
import gc
import os
import shutil
import sys
import tempfile

#: Consoles of tests keep their state, and their black boxes, apart from those of the user.
_STATE = tempfile.mkdtemp(prefix="gconsole-tests-state-")
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE


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
