"""OpenSSH's effective configuration for a host (`ssh -G`), parsed.

asyncssh's own parser rejects valid configuration (trailing comments, `5s`, missing identity files) and silently ignores
StrictHostKeyChecking, so it never sees the user's configuration.
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
from .ssh_config_files import is_plain, treats_names_alike

#: Identity files that `ssh -G` lists without any configuration; versions of OpenSSH differ.
_DEFAULT_IDENTITY = re.compile(r"~/\.ssh/id_(rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)")
#: Key of hosts.toml's known_hosts file beside OpenSSH's own keys.
OUR_KNOWN_HOSTS = "gconsole known_hosts"


@dataclass(frozen=True)
class ResolvedHost:
    """Effective client configuration of one host; keys are OpenSSH's, in lower case."""

    name: str
    values: Mapping[str, list[str]]

    def first(self, key: str) -> str | None:
        """The first value of a keyword; None if absent or `none`."""
        values = self.values.get(key)
        return values[0] if values and values[0].lower() != "none" else None

    @property
    def hostname(self) -> str:
        """Host name to connect to."""
        return self.first("hostname") or self.name

    @property
    def port(self) -> int:
        """Port to connect to."""
        return int(self.first("port") or 22)

    @property
    def user(self) -> str | None:
        """User to log in as; None for the local user."""
        return self.first("user")

    @property
    def host_key_alias(self) -> str | None:
        """Name under which known_hosts lists the host."""
        return self.first("hostkeyalias")

    @property
    def proxy_jump(self) -> str | None:
        """Jump hosts, comma-separated."""
        return self.first("proxyjump")

    @property
    def proxy_command(self) -> tuple[str, ...] | None:
        """The ProxyCommand as OpenSSH starts it; `ssh -G` leaves its tokens unexpanded."""
        command = self.first("proxycommand")
        return ("/bin/sh", "-c", f"exec {self._expanded(command)}") if command else None

    @property
    def accept_new(self) -> bool:
        """Whether unknown host keys are accepted and saved."""
        return self.first("stricthostkeychecking") == "accept-new"

    @property
    def identities_only(self) -> bool:
        """Whether only configured keys are offered."""
        return self.first("identitiesonly") == "yes"

    @cached_property
    def identity_files(self) -> tuple[Path, ...]:
        """Existing identity files; OpenSSH skips the others."""
        return self._existing("identityfile")

    @cached_property
    def missing_identity_files(self) -> tuple[Path, ...]:
        """Identity files that the user configured and that do not exist; OpenSSH's defaults are none of these."""
        named = (text for text in self.values.get("identityfile", []) if text.lower() != "none")
        paths = (Path(self._expanded(text)).expanduser() for text in named if not _DEFAULT_IDENTITY.fullmatch(text))
        return tuple(path for path in paths if not path.is_file())

    @cached_property
    def certificate_files(self) -> tuple[Path, ...]:
        """Existing certificate files."""
        return self._existing("certificatefile")

    @property
    def identity_agent(self) -> str:
        """Socket of the ssh-agent; empty if none is to be used."""
        value = (self.values.get("identityagent") or ["SSH_AUTH_SOCK"])[0]
        if value == "SSH_AUTH_SOCK" or value.startswith("$"):
            return os.environ.get(value.strip("${}"), "")
        return "" if value.lower() == "none" else str(Path(self._expanded(value)).expanduser())

    def known_hosts(self) -> tuple[Path, ...]:
        """The user's and the system's known_hosts files, in reading order."""
        names = " ".join(self.values.get("userknownhostsfile", []) + self.values.get("globalknownhostsfile", []))
        ours = self.values.get(OUR_KNOWN_HOSTS, [])  # separate key: this path may contain spaces
        paths = tuple(Path(name).expanduser() for name in ours or names.split() if name.lower() != "none")
        return paths or (Path("~/.ssh/known_hosts").expanduser(),)

    def _existing(self, key: str) -> tuple[Path, ...]:
        values = (value for value in self.values.get(key, []) if value.lower() != "none")
        paths = (Path(self._expanded(value)).expanduser() for value in values)
        return tuple(path for path in paths if path.is_file())

    def _expanded(self, text: str) -> str:
        """Expand ssh_config(5) tokens and `${VARIABLES}`; unknown ones stay."""
        here = platform.node()
        tokens = {
            "%": "%", "d": str(Path.home()), "h": self.hostname, "i": str(os.getuid()),
            "k": self.host_key_alias or self.name, "L": here.partition(".")[0], "l": here, "n": self.name,
            "p": str(self.port), "r": self.user or getpass.getuser(), "u": getpass.getuser(),
        }  # fmt: skip
        text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text)
        return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def with_ours(resolved: ResolvedHost, ssh: SshConfig, address: str | None) -> ResolvedHost:
    """Apply hosts.toml on top of the user's ssh configuration."""
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
        values.pop("proxycommand", None)  # OpenSSH uses the first of the two; ours comes first
    return dataclasses.replace(resolved, values=values)


def parse(name: str, output: str) -> ResolvedHost:
    """Parse the output of `ssh -G`."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if value:
            values.setdefault(key.lower(), []).append(value.strip())
    return ResolvedHost(name, values)


class Resolver:
    """Runs `ssh -G` once per host name; without an `ssh` program OpenSSH's defaults apply.

    Where the user's files treat all names alike, and the answers for the first two names differ in these alone, no
    further process is run: one takes 5 ms of CPU.
    """

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Task[ResolvedHost]] = {}
        self._first: list[asyncio.Task[ResolvedHost]] = []  # of the first two plain names
        self._ssh = shutil.which("ssh")
        self._running = asyncio.Semaphore(8)  # bounds concurrent processes

    async def resolve(self, name: str) -> ResolvedHost:
        """The configuration of a host name or alias. Raises SshConfigInvalid where OpenSSH rejects it."""
        if name not in self._answers:
            is_shared = is_plain(name) and len(self._first) == 2
            task = asyncio.create_task(self._share(name) if is_shared else self._resolve(name))
            if is_plain(name) and not is_shared:
                self._first.append(task)
            self._answers[name] = task
        try:
            return await asyncio.shield(self._answers[name])
        except errors.FleetError:
            self._answers.pop(name, None)  # the user may fix the file and retry
            raise

    async def _share(self, name: str) -> ResolvedHost:
        """What the first two names have in common, if the files treat all names alike."""
        await asyncio.wait(self._first)
        return _shared(self._common, name) if self._common is not None else await self._resolve(name)

    @cached_property
    def _common(self) -> ResolvedHost | None:
        """The answer for the first name, if that for the second one differs in the name alone; else None."""
        if self._ssh is None or any(task.cancelled() or task.exception() for task in self._first):
            return None
        first, second = (task.result() for task in self._first)
        is_alike = _shared(first, second.name) == second and first.values.get("hostname") == [first.name]
        return first if is_alike and treats_names_alike(self._ssh) else None

    async def _resolve(self, name: str) -> ResolvedHost:
        if self._ssh is None:
            return default(name)
        async with self._running:
            status, out, err = await output(self._ssh, "-G", "--", name)
        if status:
            lines = err.strip().splitlines() or ["no error message"]
            raise errors.SshConfigInvalid(
                f"ssh -G {name} failed: {lines[0]}", f"fix ~/.ssh/config; to reproduce: ssh -G {name}"
            )
        return parse(name, out)


def _shared(resolved: ResolvedHost, name: str) -> ResolvedHost:
    """The same configuration for another name."""
    names = {key: [name] for key in ("host", "hostname") if key in resolved.values}
    return ResolvedHost(name, {**resolved.values, **names})


def default(name: str) -> ResolvedHost:
    """OpenSSH's defaults, without any configuration file."""
    keys = [f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")]
    files = ["~/.ssh/known_hosts ~/.ssh/known_hosts2"]
    return ResolvedHost(name, {"hostname": [name], "identityfile": keys, "userknownhostsfile": files})
