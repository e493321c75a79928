"""Host keys: read once per set of files, always checked, written only when `accept-new` was asked for."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from ..text.atomic_files import make_folder
from . import errors


class KnownHosts:
    """The entries of one set of known_hosts files, shared by every connection that uses them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._entries = asyncssh.import_known_hosts("")
        self._load()

    def _load(self) -> None:
        for path in self.paths:
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise errors.SshConfigInvalid(f"known_hosts cannot be read: {error}", f"check {path}") from error
            for line in text.splitlines():
                self._load_line(line)

    def _load_line(self, line: str) -> None:
        try:
            self._entries.load(line)
        except ValueError:
            return  # a line OpenSSH would skip as well (a key type or a format of another version)

    def match(self, host: str, addr: str, port: int | None) -> tuple[Sequence[Any], ...]:
        """The keys of a host, authorities for it, keys that are revoked there, and four more sorts: asyncssh's order.

        Where nothing is known of a port asyncssh takes what is known of the host, and forgets what is revoked there.
        """
        port = None if port == 22 else port
        found = self._entries.match(host, addr, port)
        if port is None:
            return tuple(found)
        names = [f"[{name}]:{port}" for name in (host, addr) if name]
        revoked = [key for name in names for key in self._entries.match(name, "", None)[2]]
        return (*found[:2], [*found[2], *revoked], *found[3:])

    def fingerprints(self, host: str, addr: str, port: int) -> list[str]:
        """SHA-256 fingerprints of the keys known for a host, each once (name and address may have a line each)."""
        return list(dict.fromkeys(key.get_fingerprint() for key in self.match(host, addr, port)[0]))

    def is_known(self, host: str, addr: str, port: int) -> bool:
        """Whether any key or authority is known for a host: then no other key is ever accepted."""
        keys, authorities, *_ = self.match(host, addr, port)
        return bool(keys or authorities)

    def algorithms(self, host: str, addr: str, port: int) -> list[str]:
        """The kinds of host keys that are asked for, the best first; certificates only where an authority is known.

        What is known comes before the rest, and the rest is asked for all the same: a server that has nothing of what
        is known would hang up without a word, and so it shows a key that can be named, and is refused.
        """
        keys, authorities, *_ = self.match(host, addr, port)
        certificates = get_default_certificate_algs() if authorities else []
        known = [algorithm for key in keys for algorithm in key.sig_algorithms]
        wanted = dict.fromkeys([*certificates, *known, *get_default_public_key_algs()])
        return [algorithm.decode() for algorithm in wanted]

    def accept(self, host: str, port: int, key: asyncssh.SSHKey) -> None:
        """Append a host's key to the first file: locked, 0600, never through a link. Raises SshConfig."""
        name = host if port == 22 else f"[{host}]:{port}"
        line = f"{name} {' '.join(key.export_public_key('openssh').decode().split()[:2])}\n"
        path = self.paths[0]
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                ends_whole = size == 0 or os.pread(fd, 1, size - 1) == b"\n"
                file.write(line.encode() if ends_whole else b"\n" + line.encode())
        except OSError as error:
            text = f"the new host key of {host} could not be kept: {error}"
            raise errors.SshConfigInvalid(text, f"check {path}") from error
        self._entries.load(line)


class HostKeyCheck:
    """One connection's verdict on the key it was shown; asyncssh asks only where no known key matched."""

    def __init__(self, known: KnownHosts, node: str, host: str, accept_new: bool) -> None:
        self.known, self.node, self.host, self.accept_new = known, node, host, accept_new
        self.failure: errors.FleetError | None = None

    def judge(self, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """True where the key may be trusted from now on; otherwise `failure` says why not."""
        shown = key.get_fingerprint()
        if self.known.is_known(self.host, addr, port):
            before = ", ".join(self.known.fingerprints(self.host, addr, port)) or "a certificate authority's"
            self.failure = self.changed(before, shown, port)
        elif self.accept_new:
            try:
                self.known.accept(self.host, port, key)
            except errors.FleetError as error:
                self.failure = error
        else:
            self.failure = errors.HostKeyUnknown(
                f"the host key is in no known_hosts file (it shows {shown})",
                f'compare the fingerprint, then connect once with ssh {self.node}; or host_key_policy = "accept-new"',
            )
        return self.failure is None

    def changed(self, before: str, shown: str, port: int) -> errors.FleetError:
        name = self.host if port == 22 else f"[{self.host}]:{port}"
        return errors.HostKeyChanged(
            f"the host key is not the one in known_hosts (was {before}, is {shown})",
            f"if {self.node} was reinstalled, remove its line with: ssh-keygen -R '{name}' -f {self.known.paths[0]}",
        )
