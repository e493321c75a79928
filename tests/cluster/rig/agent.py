"""A temporary ssh-agent."""

import os
import subprocess
import time
from pathlib import Path

from .claims import Claim
from .detect import TOOL_PATH, tool

DEADLINE_S = 60.0
# ssh-add repeats the prompt while the passphrase is wrong: the second prompt gets no answer.
_ASKER = """#!/bin/sh
[ -e "$0.asked" ] && exit 1
: > "$0.asked"
printf '%s\\n' "$GCT_PASSPHRASE"
"""


class SshAgent:
    """A running temporary ssh-agent; a context manager. `env` points a program at it."""

    def __init__(self, claim: Claim, socket: Path) -> None:
        self.socket = socket
        self.env = {"SSH_AUTH_SOCK": str(socket)}
        self._process = subprocess.Popen(
            [tool("ssh-agent"), "-D", "-a", str(socket)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        claim.note_process(self._process.pid)
        deadline = time.monotonic() + DEADLINE_S
        while not socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise OSError("ssh-agent does not start")
            time.sleep(0.005)

    def __enter__(self) -> "SshAgent":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(DEADLINE_S)

    def add(self, key: Path, passphrase: str = "") -> None:
        """Load a key; CalledProcessError if the agent rejects it or the passphrase is wrong."""
        # ssh-add reads a passphrase from a terminal or from SSH_ASKPASS, never from stdin.
        asker = self.socket.with_name(f"{self.socket.name}.askpass")
        asker.write_text(_ASKER)
        asker.chmod(0o700)
        asker.with_name(f"{asker.name}.asked").unlink(missing_ok=True)
        env = {
            "PATH": TOOL_PATH,
            "HOME": os.devnull,
            **self.env,
            "SSH_ASKPASS": str(asker),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": ":none",
            "GCT_PASSPHRASE": passphrase,
        }
        subprocess.run(
            [tool("ssh-add"), "-q", str(key)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=DEADLINE_S,
            start_new_session=True,
        )
