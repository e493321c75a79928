"""Audit log of `gconsole api`: who asked for what, as records of kind `log` with source `api`."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from ..records import Log, Severity
from ..text.sanitize import printable
from .tokens import ApiToken

#: Seconds. Further reads of one path by one token from one address, and further rejections of one address, are counted
#: and logged with the first one after that time.
READS_EVERY_S: Final = 3600.0
REJECTIONS_EVERY_S: Final = 60.0
#: Combinations of token, address and path that are logged separately; the least recently logged one is dropped.
_MAX_SERIES: Final = 4096
#: Letters of a path.
_MAX_PATH: Final = 200


class _Series(msgspec.Struct):
    logged_s: float
    left_out: int = 0


class AuditLog:
    """Publishes a record for every request that is not a read, and for the first ones of equal reads and rejections."""

    def __init__(self, publish: Callable[[Log], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._publish, self._clock = publish, clock
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()

    def report(self, token: ApiToken | None, address: str, method: str, path: str, status: int) -> None:
        """Log one request that was answered with `status`; `token` is None if it had no valid one."""
        shown, left_out = printable(path[:_MAX_PATH]), 0
        if token is None or status == 403:
            left_out = self._passes(("rejected", token.name if token else "", address), REJECTIONS_EVERY_S)
        elif method in ("GET", "HEAD"):
            left_out = self._passes((token.name, address, shown), READS_EVERY_S)
        if left_out < 0:
            return
        before = f" ({left_out} more since the last such line)" if left_out else ""
        holder = token.name if token is not None else None
        severity: Severity = "warning" if token is None or status == 403 else "info"
        text = f"{holder or 'no valid token'} from {address}: {method} {shown}: {status}{before}"
        self._publish(Log(source="api", severity=severity, subject=holder, text=text))

    def _passes(self, key: tuple[str, ...], every_s: float) -> int:
        """How many lines of a series were left out before this one; -1 if this one is left out, too."""
        now_s = self._clock()
        series = self._series.get(key)
        if series is not None and now_s - series.logged_s < every_s:
            series.left_out += 1
            return -1
        left_out = 0 if series is None else series.left_out
        self._series.pop(key, None)
        self._series[key] = _Series(now_s)
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)
        return left_out
