"""Host key verification: known_hosts is read once per set of files and written only for `accept-new`."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..text.atomic_files import make_folder
from . import errors
from .asyncssh_import import asyncssh

_log = logging.getLogger(__name__)


class KnownHosts:
    """The entries of one set of known_hosts files, shared by all connections that use them."""

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
                raise errors.SshConfigInvalid(f"cannot read known_hosts: {error}", f"check {path}") from error
            for line in text.splitlines():
                self._load_line(line)

    def _load_line(self, line: str) -> None:
        try:
            self._entries.load(line)
        except ValueError:
            return  # OpenSSH skips such lines too (unknown key type or format)

    def match(self, host: str, addr: str, port: int | None) -> tuple[Sequence[Any], ...]:
        """The known, CA and revoked keys of a host and four more lists, in asyncssh's order.

        For a port without entries asyncssh falls back to the host's entries but drops its revoked keys: added here.
        """
        port = None if port == 22 else port
        matches = self._entries.match(host, addr, port)
        if port is None:
            return tuple(matches)
        names = [f"[{name}]:{port}" for name in (host, addr) if name]
        revoked = [key for name in names for key in self._entries.match(name, "", None)[2]]
        return (*matches[:2], [*matches[2], *revoked], *matches[3:])

    def fingerprints(self, host: str, addr: str, port: int) -> list[str]:
        """SHA-256 fingerprints of the keys known for a host, without duplicates."""
        return list(dict.fromkeys(key.get_fingerprint() for key in self.match(host, addr, port)[0]))

    def is_known(self, host: str, addr: str, port: int) -> bool:
        """Whether any key or CA is known for a host: no other key is accepted then."""
        keys, authorities, *_ = self.match(host, addr, port)
        return bool(keys or authorities)

    def algorithms(self, host: str, addr: str, port: int) -> list[str]:
        """Host key algorithms to offer: those of known keys, then the rest; certificates only with a known CA.

        The rest is offered so that a server with other keys presents one, whose fingerprint the error can show.
        """
        keys, authorities, *_ = self.match(host, addr, port)
        certificates = asyncssh.public_key.get_default_certificate_algs() if authorities else []
        expected = [algorithm for key in keys for algorithm in key.sig_algorithms]
        wanted = dict.fromkeys([*certificates, *expected, *asyncssh.public_key.get_default_public_key_algs()])
        return [algorithm.decode() for algorithm in wanted]

    def accept(self, host: str, port: int, key: asyncssh.SSHKey) -> None:
        """Append a host's key to the first file: locked, mode 0600, symlinks refused. Raises SshConfigInvalid."""
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
            text = f"cannot save the host key of {host}: {error}"
            raise errors.SshConfigInvalid(text, f"check {path}") from error
        self._entries.load(line)


class HostKeyCheck:
    """Host key verification of one connection; asyncssh calls it only where no known key matched."""

    def __init__(self, known_hosts: KnownHosts, node: str, host: str, accept_new: bool) -> None:
        self.known, self.node, self.host, self.accept_new = known_hosts, node, host, accept_new
        self.failure: errors.FleetError | None = None

    def check(self, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Whether the key is trusted; otherwise sets `failure`."""
        shown = key.get_fingerprint()
        if self.known.is_known(self.host, addr, port):
            before = ", ".join(self.known.fingerprints(self.host, addr, port)) or "a certificate authority's"
            self.failure = self.changed(before, shown, port)
        elif self.accept_new:
            try:
                self.known.accept(self.host, port, key)
                _log.info("%s: new host key %s saved in %s", self.node, shown, self.known.paths[0])
            except errors.FleetError as error:
                self.failure = error
        else:
            self.failure = errors.HostKeyUnknown(
                f"host key is not in known_hosts (offered {shown})",
                f'verify the fingerprint, then run: ssh {self.node}; or set host_key_policy = "accept-new"',
            )
        return self.failure is None

    def changed(self, before: str, shown: str, port: int) -> errors.FleetError:
        """The error for a key that differs from known_hosts."""
        name = self.host if port == 22 else f"[{self.host}]:{port}"
        return errors.HostKeyChanged(
            f"host key changed (known_hosts has {before}, host offers {shown})",
            f"if {self.node} was reinstalled, run: ssh-keygen -R '{name}' -f {self.known.paths[0]}",
        )
