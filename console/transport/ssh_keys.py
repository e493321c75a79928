"""Login keys from the ssh-agent and from files, loaded once and shared by all connections."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from .asyncssh_import import asyncssh
from .ssh_config import ResolvedHost

#: Prompts for a secret: (account, prompt) → the answer, or None if dismissed or non-interactive.
Prompt = Callable[[str, str], Awaitable[str | None]]
#: Passphrase attempts per key; a key that stays locked is asked for again only after a manual reconnect.
_TRIES = 3


class Identities(msgspec.Struct):
    """Keys to offer, preferred first, and the key files that need a passphrase."""

    keys: list[asyncssh.SSHKeyPair] = msgspec.field(default_factory=list)
    locked: list[Path] = msgspec.field(default_factory=list)
    broken: list[str] = msgspec.field(default_factory=list)  # unreadable key files, with the reason
    agent: str = ""  # why the ssh-agent offers no key; empty if it does


class KeyRing:
    """Loads identities in OpenSSH's order: agent keys that match a configured file, other agent keys, then files.

    A key with a certificate (`CertificateFile`, or one beside the key) is offered with it first, then alone.
    """

    def __init__(self, prompt_user: Prompt | None = None) -> None:
        self._prompt_user = prompt_user
        self._agents: dict[str, asyncio.Task[tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]]] = {}
        self._files: dict[Path, asyncio.Task[asyncssh.SSHKey | None]] = {}

    async def identities(self, resolved: ResolvedHost) -> Identities:
        """The keys to offer to a host."""
        files = resolved.identity_files
        beside = (Path(f"{path}-cert.pub") for path in files)
        certificates = _certificates([*resolved.certificate_files, *(path for path in beside if path.is_file())])
        agent_keys, problem = await self._agent_keys(resolved.identity_agent)
        wanted = [public for public in map(_public_part, files) if public]
        matching = [key for key in agent_keys if key.key_public_data in wanted]
        others = [] if resolved.identities_only else [key for key in agent_keys if key not in matching]
        identities = Identities(
            keys=[pair for key in matching + others for pair in _with_certificates(key, certificates)], agent=problem
        )
        held = {key.key_public_data for key in agent_keys}
        for path in files:
            if _public_part(path) in held:
                continue
            try:
                key = await self._file_key(path)
            except (asyncssh.KeyImportError, OSError) as error:
                identities.broken.append(f"{path}: {error}")
                continue
            if key is None:
                identities.locked.append(path)
            elif key.public_data not in held:
                [pair] = asyncssh.load_keypairs([key])
                identities.keys.extend(_with_certificates(pair, certificates))
        return identities

    async def _agent_keys(self, socket: str) -> tuple[list[asyncssh.SSHKeyPair], str]:
        """The keys of the ssh-agent; without any, also the reason."""
        if not socket:
            return [], "no ssh-agent (SSH_AUTH_SOCK is not set)"
        if socket not in self._agents:
            self._agents[socket] = asyncio.create_task(_open_agent(socket))
        agent, keys = await asyncio.shield(self._agents[socket])
        problem = "the ssh-agent is not reachable" if agent is None else "" if keys else "the ssh-agent has no keys"
        return list(keys), problem

    async def _file_key(self, path: Path) -> asyncssh.SSHKey | None:
        """The key in a file; None if encrypted and no passphrase was given."""
        if path not in self._files:
            self._files[path] = asyncio.create_task(self._load(path))
        return await asyncio.shield(self._files[path])

    async def _load(self, path: Path) -> asyncssh.SSHKey | None:
        try:
            return asyncssh.read_private_key(path)
        except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
            if not _is_locked(error):
                raise
        if self._prompt_user is None:
            return None
        prompt = f"Passphrase for {path}"
        for _ in range(_TRIES):
            passphrase = await self._prompt_user(str(path), prompt)
            if passphrase is None:
                return None
            try:
                return asyncssh.read_private_key(path, passphrase)
            except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError):
                prompt = f"Wrong passphrase. Passphrase for {path}"
        return None

    def forget_refused_prompts(self) -> None:
        """Allow dismissed passphrase prompts again: the user wants another attempt."""
        for path, task in list(self._files.items()):
            if task.done() and not task.cancelled() and task.exception() is None and task.result() is None:
                del self._files[path]

    async def close(self) -> None:
        """Cancel open prompts and close ssh-agent connections."""
        for prompt in self._files.values():
            prompt.cancel()
        for task in self._agents.values():
            agent = (await task)[0]
            if agent is not None:
                agent.close()


async def _open_agent(socket: str) -> tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]:
    """The ssh-agent and its keys; none if it is unreachable, as in OpenSSH."""
    try:
        agent = await asyncssh.connect_agent(socket)
        return agent, list(await agent.get_keys())
    except (OSError, ValueError, asyncssh.Error):
        return None, []


def _certificates(paths: Sequence[Path]) -> list[asyncssh.SSHCertificate]:
    """The readable certificates; OpenSSH skips the others too."""
    certificates = []
    for path in paths:
        try:
            certificates.append(asyncssh.read_certificate(path))
        except (OSError, asyncssh.KeyImportError):
            continue
    return certificates


def _with_certificates(
    key: asyncssh.SSHKeyPair, certificates: Sequence[asyncssh.SSHCertificate]
) -> list[asyncssh.SSHKeyPair]:
    """The key with each of its certificates, then alone."""
    pairs = []
    for certificate in certificates:
        if certificate.key.public_data == key.public_data:
            pair = copy.copy(key)
            pair.set_certificate(certificate)
            pairs.append(pair)
    return [*pairs, key]


def _is_locked(error: Exception) -> bool:
    """Whether a passphrase is missing: asyncssh raises different types for PKCS and OpenSSH formats."""
    return isinstance(error, asyncssh.KeyEncryptionError) or "assphrase" in str(error)


def _public_part(path: Path) -> bytes | None:
    """The public key beside a private key file, as the ssh-agent identifies it."""
    try:
        public: bytes = asyncssh.read_public_key(f"{path}.pub").public_data
        return public
    except (OSError, asyncssh.KeyImportError):
        return None
