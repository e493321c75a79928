"""What went wrong with an SSH connection or login, in words and with something to try."""

from __future__ import annotations

import socket
from typing import Protocol

import asyncssh

from . import errors
from .host_keys import HostKeyCheck
from .ssh_config import ResolvedHost
from .ssh_keys import Identities, Prompt


class SshClient(Protocol):
    """What was asked during the handshake."""

    wanted_typing: bool
    unanswered: bool  # somebody was there to type, and did not
    ask: Prompt | None


def explain(
    error: Exception, name: str, resolved: ResolvedHost, check: HostKeyCheck, client: SshClient, identities: Identities
) -> errors.FleetError:
    """The failure behind whatever asyncssh or the system raised."""
    where = f"{resolved.hostname}:{resolved.port}"
    if check.failure is not None:
        return check.failure
    if isinstance(error, socket.gaierror):
        return errors.Dns(
            f"the name {resolved.hostname} does not resolve", f"check the spelling, or set address for {name}"
        )
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectionRefused(f"nothing listens at {where}", "is sshd running there, is the port right?")
    if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
        return errors.Timeout(f"no answer from {where} in time ({error or 'connect'})", f"try: ssh -v {name}")
    if isinstance(error, asyncssh.KeyExchangeFailed) and check.known.is_known(check.host, "", resolved.port):
        known = ", ".join(check.known.fingerprints(check.host, "", resolved.port))
        return check.changed(known, "of another type", resolved.port)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return errors.HostKeyChanged(
            f"the host key of {where} is not trusted: {error.reason}",
            f"look for @revoked and @cert-authority in {check.known.paths[0]}; what the host shows: ssh -v {name}",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return _explain_denied(name, resolved, client, identities)
    if isinstance(error, asyncssh.ChannelOpenError):
        return errors.ConnectionRefused(
            f"the jump host cannot reach {where}: {error.reason}", "is the node up, is the address right from there?"
        )
    if isinstance(error, (ConnectionResetError, BrokenPipeError, asyncssh.ConnectionLost)):
        return errors.Throttled(
            f"{where} closed the connection during the handshake ({error or type(error).__name__})",
            "sshd drops logins beyond MaxStartups, and penalises a source after failures; it is tried again, slower",
        )
    if isinstance(error, OSError):
        return errors.ConnectionRefused(f"{where} cannot be reached: {error.strerror or error}", f"try: ssh -v {name}")
    return errors.Lost(f"the login at {where} failed: {error}", f"try: ssh -v {name}")


def _explain_denied(name: str, resolved: ResolvedHost, client: SshClient, identities: Identities) -> errors.FleetError:
    user = resolved.user or "the current user"
    if identities.locked:
        keys = ", ".join(map(str, identities.locked))
        return errors.AuthInteractive(
            f"the key {keys} is encrypted and no ssh-agent holds it", f"ssh-add {identities.locked[0]}"
        )
    if client.unanswered:
        return errors.AuthInteractive(
            f"the server wants a password or a second factor for {user}, and none was typed", "R asks for it again"
        )
    if client.wanted_typing and client.ask is None:
        return errors.AuthInteractive(
            f"the server wants a password or a second factor for {user}, and nobody is here to type it",
            'use a key or an ssh-agent, or log in once with ssh\'s ControlMaster and transport = "openssh"',
        )
    offered = len(identities.keys)
    broken = f"; unreadable: {'; '.join(identities.broken)}" if identities.broken else ""
    return errors.Auth(
        f"key refused for {user} ({offered} key{'' if offered == 1 else 's'} offered{broken})",
        f"try: ssh -v {name}; is the public key in its authorized_keys, is the user right?",
    )
