"""Commands that the console runs: their output, and shutdown of the console while they run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from gconsole.transport.run_command import output

ENDS_WHILE_IT_ASKS = """
import asyncio
from gconsole.transport.ssh_config import Resolver

async def main():
    asking = asyncio.ensure_future(Resolver().resolve("node01"))
    while not os.path.exists(os.environ["STARTED"]):
        await asyncio.sleep(0.01)

import os
asyncio.run(main())
"""


def test_command_returns_exit_status_stdout_and_stderr() -> None:
    assert asyncio.run(output("/bin/sh", "-c", "echo out; echo err >&2; exit 3")) == (3, "out\n", "err\n")


def test_console_exit_during_an_ssh_query_prints_nothing_and_kills_ssh(tmp_path: Path) -> None:
    started = tmp_path / "started"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $$ > {started}.new && mv {started}.new {started}\nexec sleep 60\n")
    ssh.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "STARTED": str(started), "HOME": str(tmp_path)}
    argv = [sys.executable, "-c", ENDS_WHILE_IT_ASKS]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    end = time.monotonic() + 10
    while Path(f"/proc/{started.read_text().strip()}").exists():  # killed; init may take a moment to reap it
        assert time.monotonic() < end
        time.sleep(0.02)
