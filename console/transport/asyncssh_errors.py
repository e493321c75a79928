"""Maps asyncssh and socket exceptions of a connection attempt to FleetErrors."""

from __future__ import annotations

import errno
import os
import socket
from typing import Protocol

import asyncssh

from . import errors
from .host_keys import HostKeyCheck
from .ssh_config import ResolvedHost
from .ssh_keys import Identities, Prompt


class SshClient(Protocol):
    """State of the SSH client during the handshake."""

    wanted_typing: bool
    unanswered: bool  # a prompt was shown and dismissed
    ask: Prompt | None


def explain(
    error: Exception, name: str, resolved: ResolvedHost, check: HostKeyCheck, client: SshClient, identities: Identities
) -> errors.FleetError:
    """Return the FleetError for an exception raised by asyncssh or the operating system."""
    where = f"{resolved.hostname}:{resolved.port}"
    if check.failure is not None:
        return check.failure
    if isinstance(error, socket.gaierror):
        return errors.Dns(
            f"cannot resolve host name {resolved.hostname}", f"check the spelling, or set address for {name}"
        )
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectionRefused(
            f"connection refused by {where}", "check that sshd is running there and that the port is right"
        )
    if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
        return errors.Timeout(f"no response from {where} ({error or 'connect'})", f"try: ssh -v {name}")
    if isinstance(error, asyncssh.KeyExchangeFailed) and check.known.is_known(check.host, "", resolved.port):
        expected = ", ".join(check.known.fingerprints(check.host, "", resolved.port))
        return check.changed(expected, "of another type", resolved.port)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return errors.HostKeyChanged(
            f"host key of {where} is not trusted: {error.reason}",
            f"check @revoked and @cert-authority in {check.known.paths[0]}; to see the offered key: ssh -v {name}",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return _explain_denied(name, resolved, client, identities)
    if isinstance(error, asyncssh.ChannelOpenError):
        return errors.ConnectionRefused(
            f"jump host cannot reach {where}: {error.reason}",
            "check that the node is up and that its address is valid from the jump host",
        )
    if isinstance(error, (ConnectionResetError, BrokenPipeError, asyncssh.ConnectionLost)):
        return errors.Throttled(
            f"{where} closed the connection during the handshake ({error or type(error).__name__})",
            "sshd limits logins (MaxStartups, PerSourcePenalties); retrying with back-off",
        )
    if isinstance(error, OSError):
        return errors.ConnectionRefused(f"{where} is unreachable: {_system_text(error)}", f"try: ssh -v {name}")
    return errors.Lost(f"login at {where} failed: {error}", f"try: ssh -v {name}")


def _system_text(error: OSError) -> str:
    """The operating system's text for an error, e.g. "no route to host"; asyncio puts the address there instead."""
    text = (
        os.strerror(error.errno)
        if error.errno is not None and error.errno in errno.errorcode
        else error.strerror or str(error)
    )
    return text[:1].lower() + text[1:]


def _explain_denied(name: str, resolved: ResolvedHost, client: SshClient, identities: Identities) -> errors.FleetError:
    user = resolved.user or "the current user"
    if identities.locked:
        keys = ", ".join(map(str, identities.locked))
        return errors.AuthInteractive(
            f"key {keys} is encrypted and not loaded in an ssh-agent", f"ssh-add {identities.locked[0]}"
        )
    if client.unanswered:
        return errors.AuthInteractive(
            f"server asks for a password or second factor for {user}; the prompt was dismissed",
            "press R to be prompted again",
        )
    if client.wanted_typing and client.ask is None:
        return errors.AuthInteractive(
            f"key authentication failed for {user}; server asks for a password or second factor (not available here)",
            'use a key or an ssh-agent, or an ssh ControlMaster with transport = "openssh"',
        )
    offered = len(identities.keys)
    broken = f"; unreadable: {'; '.join(identities.broken)}" if identities.broken else ""
    return errors.Auth(
        f"key refused for {user} ({offered} key{'' if offered == 1 else 's'} offered{broken})",
        f"try: ssh -v {name}; check authorized_keys on the node, and the user name",
    )
