"""Runs gconsole as a user does, with this machine as the only node."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import fork_server
from fork_server import GCONSOLE
from rig import agent_cache

from gconsole.session.format import reader
from gconsole.session.format.layout import named
from gconsole.session.manage.catalog import entry_of

DEADLINE_S = 60.0


class Program:
    """gconsole with its own sessions folder and hosts.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts, self.cache = folder / "sessions", folder / "hosts.toml", folder / "cache"
        self.env = {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(self.folder), "HOME": str(folder),
                    "XDG_STATE_HOME": str(folder / "state")}  # fmt: skip
        self.running: list[subprocess.Popen[str]] = []
        # Includes py-spy: each console with a new home would compress it again, 3 s of CPU time.
        shutil.copytree(agent_cache.folder(), self.cache)

    def write(self, linger_s: int = 0) -> None:
        self.hosts.write_text(
            f'[ssh]\ntransport = "local"\n[agent]\nsimulate_gpus = 2\nlinger_s = {linger_s}\nsample_interval_ms = 200\n'
            f'cache_dir = "{self.cache}"\n'
            '[[nodes]]\nhosts = "here"\nprocess_filter = "env:NOBODY_HAS=this"\n'
        )

    def start(self, *args: str) -> "subprocess.Popen[str]":
        argv = [str(GCONSOLE), *args]
        process = fork_server.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.running.append(process)
        return process

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return fork_server.run([GCONSOLE, *args], env=self.env, text=True, timeout=DEADLINE_S)

    def record(self, name: str, *args: str) -> "subprocess.Popen[str]":
        return self.start("record", str(self.hosts), "--name", name, *args)

    def wait_for(self, name: str, kind: str, number: int) -> None:
        """Wait until that many records of the kind are on the disk."""
        deadline = time.monotonic() + DEADLINE_S
        while self.counts(name).get(kind, 0) < number:
            assert time.monotonic() < deadline, self.counts(name)
            time.sleep(0.1)

    def counts(self, name: str) -> dict[str, int]:
        """Records on the disk by kind, as another process counts them; empty before the session exists."""
        session = named(name, self.folder)
        meta = entry_of(session).meta if session.path.is_dir() else None
        return meta.counts if meta is not None else {}

    def state(self, name: str) -> str:
        return json.loads(self.run("sessions", "show", name, "--json").stdout)["state"]

    def records(self, name: str) -> list:
        return list(reader.records(named(name, self.folder).path))


def wait_for_end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err
