"""One process for the queries of all apps: each view named Query starts one, which imports DuckDB for half a second."""

from __future__ import annotations

import subprocess

from pytest import MonkeyPatch

from gconsole.session.query.worker import QueryReply, QueryRequest, QueryWorkerClient
from gconsole.tui.controllers import query

_idle: list[subprocess.Popen[bytes]] = []


class SharingClient(QueryWorkerClient):
    """Takes a process that is idle, if there is one, and keeps its own for the next client instead of ending it.

    A process whose query was given up is ended, as elsewhere.
    """

    _is_replying = False

    def _running(self) -> subprocess.Popen[bytes]:
        while self._process is None and _idle:
            process = _idle.pop()
            self._process = process if process.poll() is None else None
        return super()._running()

    def _send(self, request: QueryRequest) -> QueryReply:
        self._is_replying = True
        try:
            return super()._send(request)
        finally:
            self._is_replying = False

    def close(self) -> None:
        if self._process is None or self._is_replying or self._process.poll() is not None:
            super().close()
        else:
            _idle.append(self._process)
            self._process = None


def use(monkeypatch: MonkeyPatch) -> None:
    """Let apps share a process."""
    monkeypatch.setattr(query, "QueryWorkerClient", SharingClient)


def end_idle() -> None:
    """End the processes that no app has."""
    while _idle:
        client = QueryWorkerClient()
        client._process = _idle.pop()
        client.close()
