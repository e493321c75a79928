"""What the `ssh` program's own words mean. It has one exit status, 255, for everything; only its text tells more."""

from __future__ import annotations

import re

from . import errors

#: Exit status of ssh for any failure of its own.
SSH_FAILED = 255

_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", errors.HostKeyChanged, "if it was reinstalled: ssh-keygen -R HOST"),
    (r"REVOKED HOST KEY DETECTED", errors.HostKeyChanged, "look for @revoked in known_hosts"),
    (
        r"Certificate invalid: ",
        errors.HostKeyChanged,
        "look for @cert-authority in known_hosts, and who signs its keys",
    ),
    (
        r"No .* host key is known for|Host key verification failed",
        errors.HostKeyUnknown,
        'compare the fingerprint, then connect once with ssh; or host_key_policy = "accept-new"',
    ),
    (r"Could not resolve hostname", errors.Dns, "check the spelling, or set address"),
    (r"Connection refused", errors.ConnectionRefused, "is sshd running there, is the port right?"),
    (
        r"No route to host|Network is unreachable|Host is down",
        errors.ConnectionRefused,
        "is the node up, is the network?",
    ),
    (r"timed out", errors.Timeout, "is the node up? try: ssh -v"),
    (
        r"Permission denied \((?!publickey\))[^)]*(password|keyboard-interactive)",
        errors.AuthInteractive,
        "log in once with ssh and ControlMaster, or use a key or an ssh-agent",
    ),
    (
        r"Permission denied|Too many authentication failures",
        errors.Auth,
        "try: ssh -v; is the public key in its authorized_keys, is the user right?",
    ),
    (
        r"kex_exchange_identification|Connection (reset|closed) by",
        errors.Throttled,
        "sshd drops logins beyond MaxStartups; it is tried again, slower",
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad",
        errors.SshConfigInvalid,
        "mend ~/.ssh/config",
    ),
)


def failure_of(exit_status: int | None, said: str) -> errors.FleetError | None:
    """The failure of `ssh` itself, where it was that."""
    return explain(said) if exit_status == SSH_FAILED else None


def explain(said: str) -> errors.FleetError:
    """The failure behind what `ssh` wrote to its standard error before it gave up."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(("@", "Warning:"))]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines or [said]:
            if re.search(pattern, line) or (kind is errors.HostKeyChanged and re.search(pattern, said)):
                return kind(f"ssh says: {line}", try_)
    return errors.Lost(f"ssh says: {lines[-1] if lines else 'nothing'}", "try: ssh -v")
