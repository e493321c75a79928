"""What all groups share: a garbage collector that runs less often."""

import gc


def pytest_collection_finish() -> None:
    """Never look through what was imported: with many modules loaded that is an eighth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Let what was imported be collected at the end, else DuckDB reports it as leaked."""
    gc.unfreeze()
