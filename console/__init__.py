"""gconsole: the console for distributed training jobs on GPU clusters, and its Python interface.

`gconsole.connect`, `gconsole.open` and `gconsole.diagnose` are the interface; docs/guide/python.md has examples.
What they need is imported on first use.
"""

import importlib
from typing import Any

__version__ = "0.2.0.dev0"

#: Public name → the module of this package that defines it.
_PUBLIC = {
    "AsyncFleet": "runtime.live",
    "ConnectedFleet": "runtime.blocking",
    "ConfigError": "config",
    "JobVerdicts": "runtime.results",
    "NoNodeReached": "runtime.live",
    "NothingSelected": "monitor.capture_selection",
    "QueryError": "session.query.limits",
    "RecordedSession": "runtime.recorded",
    "SessionError": "session.format.layout",
    "StackCapture": "runtime.results",
    "connect": "runtime.blocking",
    "connect_async": "runtime.live",
    "diagnose": "runtime.recorded",
    "open": "runtime.recorded",
}
__all__ = ["GconsoleError", "__version__", *sorted(_PUBLIC)]


class GconsoleError(Exception):
    """Any error that gconsole raises on purpose; the text says what is wrong and what to try."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
