"""What OpenSSH itself would do for a host: `ssh -G`, read into types.

asyncssh's own parser rejects legal configuration (trailing comments, `5s`, missing identity files) and skips
StrictHostKeyChecking without a word, so the user's configuration is never given to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import getpass
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..config.sections import SshConfig
from . import errors
from .run_command import output

#: The key under which a known_hosts file of hosts.toml stands beside OpenSSH's own keys.
OUR_KNOWN_HOSTS = "gconsole known_hosts"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class ResolvedHost:
    """The effective client configuration for one host; keys are OpenSSH's, in lower case."""

    name: str
    values: Mapping[str, list[str]]

    def first(self, key: str) -> str | None:
        """The value of a keyword, or None where it is absent or `none`."""
        values = self.values.get(key)
        return values[0] if values and values[0].lower() != "none" else None

    @property
    def hostname(self) -> str:
        return self.first("hostname") or self.name

    @property
    def port(self) -> int:
        return int(self.first("port") or 22)

    @property
    def user(self) -> str | None:
        return self.first("user")

    @property
    def host_key_alias(self) -> str | None:
        return self.first("hostkeyalias")

    @property
    def proxy_jump(self) -> str | None:
        return self.first("proxyjump")

    @property
    def proxy_command(self) -> tuple[str, ...] | None:
        """The program that stands in for the connection, as OpenSSH starts it; `ssh -G` leaves tokens as written."""
        command = self.first("proxycommand")
        return ("/bin/sh", "-c", f"exec {self._expanded(command)}") if command else None

    @property
    def accept_new(self) -> bool:
        return self.first("stricthostkeychecking") in ("accept-new",)

    @property
    def identities_only(self) -> bool:
        return self.first("identitiesonly") == "yes"

    @cached_property
    def identity_files(self) -> tuple[Path, ...]:
        """Identity files that exist, as OpenSSH skips the others."""
        return self._existing("identityfile")

    @cached_property
    def certificate_files(self) -> tuple[Path, ...]:
        return self._existing("certificatefile")

    @property
    def identity_agent(self) -> str:
        """Socket of the agent to ask; "" where none is to be asked."""
        value = (self.values.get("identityagent") or ["SSH_AUTH_SOCK"])[0]
        if value == "SSH_AUTH_SOCK" or value.startswith("$"):
            return os.environ.get(value.strip("${}"), "")
        return "" if value.lower() == "none" else str(Path(self._expanded(value)).expanduser())

    def known_hosts(self) -> tuple[Path, ...]:
        """The user's and the system's known_hosts files, in the order they are read."""
        names = " ".join(self.values.get("userknownhostsfile", []) + self.values.get("globalknownhostsfile", []))
        ours = self.values.get(OUR_KNOWN_HOSTS, [])  # a name of its own: it may hold a space, which separates theirs
        paths = tuple(Path(name).expanduser() for name in ours or names.split() if name.lower() != "none")
        return paths or (Path("~/.ssh/known_hosts").expanduser(),)

    def _existing(self, key: str) -> tuple[Path, ...]:
        values = (value for value in self.values.get(key, []) if value.lower() != "none")
        paths = (Path(self._expanded(value)).expanduser() for value in values)
        return tuple(path for path in paths if path.is_file())

    def _expanded(self, text: str) -> str:
        """`text` with the tokens of ssh_config(5) and `${VARIABLES}` replaced; one that is unknown stays as it is."""
        here = platform.node()
        tokens = {
            "%": "%", "d": str(Path.home()), "h": self.hostname, "i": str(os.getuid()),
            "k": self.host_key_alias or self.name, "L": here.partition(".")[0], "l": here, "n": self.name,
            "p": str(self.port), "r": self.user or getpass.getuser(), "u": getpass.getuser(),
        }  # fmt: skip
        text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text)
        return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def with_ours(resolved: ResolvedHost, ssh: SshConfig, address: str | None) -> ResolvedHost:
    """hosts.toml over what the user's ssh configuration says."""
    ours = {
        "hostname": address,
        "port": str(ssh.port) if ssh.port else None,
        "user": ssh.user,
        "identityfile": ssh.identity_file,
        OUR_KNOWN_HOSTS: ssh.known_hosts,
        "proxyjump": ssh.jump,
    }
    values = dict(resolved.values)
    values.update({key: [value] for key, value in ours.items() if value})
    if ssh.identity_file:
        values["identitiesonly"] = ["yes"]
    if ssh.jump:
        values.pop("proxycommand", None)  # of the two OpenSSH takes what comes first, and ours does
    return dataclasses.replace(resolved, values=values)


def seconds(text: str) -> float:
    """OpenSSH's time format (`90`, `5s`, `1m30s`) in seconds. Raises ValueError."""
    parts = re.findall(r"(\d+)([smhdwSMHDW]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a time: {text!r}")
    return sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts)


def parse(name: str, output: str) -> ResolvedHost:
    """What `ssh -G` printed."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if value:
            values.setdefault(key.lower(), []).append(value.strip())
    return ResolvedHost(name, values)


class Resolver:
    """Asks `ssh -G` once a host name. Without an `ssh` program the defaults of OpenSSH are assumed."""

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Task[ResolvedHost]] = {}
        self._ssh = shutil.which("ssh")
        self._running = asyncio.Semaphore(8)  # a process each: a laptop should not start a thousand at once

    async def resolve(self, name: str) -> ResolvedHost:
        """The configuration for `name`, a host name or an alias. Raises SshConfig where OpenSSH rejects it."""
        if name not in self._answers:
            self._answers[name] = asyncio.create_task(self._ask(name))
        try:
            return await asyncio.shield(self._answers[name])
        except errors.FleetError:
            self._answers.pop(name, None)  # the user may mend the file and try again
            raise

    async def _ask(self, name: str) -> ResolvedHost:
        if self._ssh is None:
            return default(name)
        async with self._running:
            status, out, err = await output(self._ssh, "-G", "--", name)
        if status:
            complaint = err.strip().splitlines() or ["no word why"]
            raise errors.SshConfigInvalid(
                f"ssh -G {name} failed: {complaint[0]}", "mend ~/.ssh/config; `ssh -G " + name + "` shows the same"
            )
        return parse(name, out)


def default(name: str) -> ResolvedHost:
    """What OpenSSH does without any configuration."""
    keys = [f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")]
    files = ["~/.ssh/known_hosts ~/.ssh/known_hosts2"]
    return ResolvedHost(name, {"hostname": [name], "identityfile": keys, "userknownhostsfile": files})
