"""A running `gconsole watch`, its events, and the alerts of a rule that writes them to a file."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from program import GCONSOLE

DEADLINE_S = 120.0


class Watch:
    """A running `gconsole watch --json` and its events so far."""

    def __init__(self, hosts: Path, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.out = hosts.with_suffix(".events")
        argv = [str(GCONSOLE), "watch", str(hosts), "--json", *args]
        self.process = subprocess.Popen(argv, stdout=self.out.open("wb"), stderr=subprocess.DEVNULL, env=env)

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.out.read_bytes().rpartition(b"\n")[0].splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.out.read_text()
            time.sleep(0.1)


@contextmanager
def watching(hosts: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Watch]:
    watch = Watch(hosts, *args, env=env)
    try:
        yield watch
    finally:
        watch.process.send_signal(signal.SIGTERM)
        try:
            watch.process.wait(60)
        finally:
            watch.process.kill()


def rule(log: Path, name: str = "page", **more: str) -> str:
    """A rule for hosts.toml that appends its alerts to `log`."""
    keys = {"run": json.dumps(["sh", "-c", f"cat >> {log}"]), "on": '["error"]', "on_clear": "true", **more}
    return f'[[watch.rule]]\nname = "{name}"\n' + "".join(f"{key} = {value}\n" for key, value in keys.items())


def alerts(log: Path) -> list[dict[str, Any]]:
    """The alerts that `rule` wrote so far."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().rpartition("\n")[0].splitlines()]
