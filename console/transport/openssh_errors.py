"""Maps the `ssh` program's error texts to FleetErrors; its exit status is 255 for all of them."""

from __future__ import annotations

import re

from . import errors

#: Exit status of ssh for any failure of its own.
SSH_FAILED = 255

_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        errors.HostKeyChanged,
        "if the node was reinstalled, run: ssh-keygen -R HOST",
    ),
    (r"REVOKED HOST KEY DETECTED", errors.HostKeyChanged, "check @revoked in known_hosts"),
    (
        r"Certificate invalid: ",
        errors.HostKeyChanged,
        "check @cert-authority in known_hosts, and the CA of its keys",
    ),
    (
        r"No .* host key is known for|Host key verification failed",
        errors.HostKeyUnknown,
        'verify the fingerprint, then connect once with ssh; or set host_key_policy = "accept-new"',
    ),
    (r"Could not resolve hostname", errors.Dns, "check the spelling, or set address"),
    (r"Connection refused", errors.ConnectionRefused, "check that sshd is running there and that the port is right"),
    (
        r"No route to host|Network is unreachable|Host is down",
        errors.ConnectionRefused,
        "check the node and the network",
    ),
    (r"timed out", errors.Timeout, "check that the node is up; try: ssh -v"),
    (
        r"Permission denied \((?!publickey\))[^)]*(password|keyboard-interactive)",
        errors.AuthInteractive,
        "log in once with ssh and ControlMaster, or use a key or an ssh-agent",
    ),
    (
        r"Permission denied|Too many authentication failures",
        errors.Auth,
        "try: ssh -v; check authorized_keys on the node, and the user name",
    ),
    (
        r"kex_exchange_identification|Connection (reset|closed) by",
        errors.Throttled,
        "sshd limits logins (MaxStartups); retrying with back-off",
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad",
        errors.SshConfigInvalid,
        "fix ~/.ssh/config",
    ),
)


def failure_of(exit_status: int | None, stderr: str) -> errors.FleetError | None:
    """The failure of `ssh` itself, or None if the remote command ended."""
    return explain(stderr) if exit_status == SSH_FAILED else None


def explain(stderr: str) -> errors.FleetError:
    """Return the FleetError for the standard error of a failed `ssh`."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith(("@", "Warning:"))]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines or [stderr]:
            if re.search(pattern, line) or (kind is errors.HostKeyChanged and re.search(pattern, stderr)):
                return kind(f"ssh: {line}", try_)
    return errors.Lost(f"ssh: {lines[-1] if lines else 'no error message'}", "try: ssh -v")
