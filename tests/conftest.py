"""What all groups share: a garbage collector that runs less often."""

import atexit
import gc


def pytest_collection_finish() -> None:
    """Never look through what was imported: with many modules loaded that is an eighth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Collect once: pytest collects five times after this, which takes seconds after many apps.

    At the exit everything can be collected again, else DuckDB reports what was imported as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
