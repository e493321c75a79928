"""A home with a temporary ssh configuration, for the program under test.

ssh(1) takes the home from the account (getpwuid), not from $HOME, so a variable is not sufficient. Two ways:

`popen`   runs the program with its own /etc/passwd, in which the account's home is this folder (root; a private
          mount namespace). ssh, asyncssh and everything else use the same home, without hooks.
`env`     for a program inside the test, and without root: HOME for asyncssh, and first in PATH an `ssh` that adds
          `-F`. Differences from a real start: /etc/ssh/ssh_config is not read, and the default keys and
          known_hosts are those of the real home.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import accounts, namespaces
from .detect import TOOL_PATH


class SshHome:
    """The folder (`path`), its `.ssh/config` (`config`), and two ways to run programs with them."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.config = path / ".ssh" / "config"
        self.config.parent.mkdir(parents=True, mode=0o700)
        self.config.write_text(text)
        self.config.chmod(0o600)
        self._write_wrapper()
        self.passwd = path.with_name(f"{path.name}.passwd")
        self._write_passwd()

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`base` (the test's own environment by default) with this home, and with `ssh` reading its configuration."""
        base = os.environ if base is None else base
        path = os.pathsep.join((str(self.path / "bin"), base.get("PATH", os.defpath)))
        return {**base, "HOME": str(self.path), "PATH": path}

    def popen(self, argv: Sequence[str], **popen: Any) -> subprocess.Popen:
        """subprocess.Popen with this home, also as the account's home if the process is root."""
        env = popen.pop("env", os.environ)
        if os.geteuid() != 0:
            return subprocess.Popen(argv, env=self.env(env), **popen)
        cwd = popen.pop("cwd", Path.cwd())

        def act() -> subprocess.Popen:
            namespaces.unshare(namespaces.CLONE_FS | namespaces.CLONE_NEWNS)
            namespaces.make_mounts_private()
            namespaces.bind_mount(self.passwd, "/etc/passwd")
            return subprocess.Popen(argv, env={**env, "HOME": str(self.path)}, cwd=cwd, **popen)

        return namespaces.in_own_thread(act)

    def _write_wrapper(self) -> None:
        wrapper = self.path / "bin" / "ssh"
        wrapper.parent.mkdir()
        program = shutil.which("ssh", path=TOOL_PATH)
        if program:
            wrapper.write_text(f'#!/bin/sh\nexec {program} -F "{self.config}" "$@"\n')
            wrapper.chmod(0o755)

    def _write_passwd(self) -> None:
        me = accounts.current()
        lines = [f"{me.name}:x:{me.uid}:{me.gid}::{self.path}:{me.shell}"]
        lines += [line for line in Path("/etc/passwd").read_text().splitlines() if line.split(":")[0] != me.name]
        self.passwd.write_text("\n".join(lines) + "\n")
        self.passwd.chmod(0o644)
