"""Shared by all groups: less frequent garbage collection."""

import atexit
import gc


def pytest_collection_finish() -> None:
    """Freeze imported objects: with many modules loaded, collecting them takes an eighth of the run time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Collect once and freeze: pytest collects five times after this, which takes seconds after many apps.

    At exit everything can be collected again, otherwise DuckDB reports imported objects as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
