"""Typing errors in a TARGET or a command: found before anything connects, with the most similar name there is."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from ..config import Config
from ..config.schema import nearest
from ..text.sanitize import printable

#: Seconds to wait for the resolver, and for `ssh -G`. A name that takes longer is left to the connection.
_RESOLVE_TIMEOUT_S: Final = 2.0
#: Options of ssh_config that make a name reachable which this machine cannot resolve.
_REACHED_OTHERWISE: Final = re.compile(r"^(?:proxyjump|proxycommand) (?!none$)", re.MULTILINE)


def suggestion(word: str, more: Iterable[str] = ()) -> str:
    """What was meant by a word that names nothing: a command, a file here, or one of `more`; "" if none is similar."""
    from .main import COMMANDS

    if word.lower() == "help":
        return "gconsole --help"
    try:
        files = [entry.name for entry in Path().iterdir() if entry.suffix == ".toml"]
    except OSError:
        files = []
    commands = () if "." in word else COMMANDS  # a word with an extension was meant as a file
    near = nearest(word, [*files, *more, *commands])
    return f"gconsole {near}" if near in commands and near not in files else near


def did_you_mean(word: str, more: Iterable[str] = ()) -> str:
    """The end of an error message: a suggestion, or nothing."""
    near = suggestion(word, more)
    return f"; did you mean {printable(near)}?" if near else ""


def is_plainly_a_target(word: str) -> bool:
    """Whether a word cannot be a mistyped command: a file that exists, a named cluster or group, a set of nodes."""
    from ..config import is_file_target
    from ..fleet.scheduler_jobs import is_site_target

    if is_file_target(word):
        return Path(word).is_file() or word.startswith("@")
    return word == "local" or is_site_target(word) or re.match(r"@\w|[\w.-]*\[", word) is not None


def require_known_name(
    config: Config, target: str, *, what: str = "a file", more: Iterable[str] = (), is_strict: bool = False
) -> None:
    """Raise UsageError if TARGET is the name of one host that is not resolvable, as a mistyped file or command is.

    `what` else it could have been, for the message; `more` are names of such things. A resolver that is temporarily
    unavailable refutes a name only if it is similar to another one, or if the check `is_strict`.
    """
    error = _unknown_name_error(config)
    if error is None:
        return
    hint = did_you_mean(target, more)
    if error == socket.EAI_AGAIN and not hint and not is_strict:
        return
    raise click.UsageError(f"{printable(target)} is neither {what} nor a host name that can be resolved{hint}")


def require_no_typing_error(config: Config, target: str) -> None:
    """Raise UsageError if TARGET is the name of one host that is not resolvable, and similar to a file or a command."""
    if (hint := did_you_mean(target)) and _unknown_name_error(config) is not None:
        raise click.UsageError(f"{printable(target)} is neither a file nor a host name that can be resolved{hint}")


def _unknown_name_error(config: Config) -> int | None:
    """The error of the resolver, if the target is the name of one host that is reached by its address; else None."""
    if config.path is not None or len(config.nodes) != 1:
        return None
    node = config.nodes[0]
    if node.engine is not None or node.address or node.ssh.transport == "local" or node.ssh.jump or node.ssh.gateway:
        return None
    error = _resolve_error(node.host)
    return None if error is None or _is_known_to_ssh(node.host) else error


def _resolve_error(host: str) -> int | None:
    """The error number of the resolver; None if the host has an address, or if the resolver takes too long."""
    errors: list[int] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            errors.append(error.errno or socket.EAI_FAIL)
        except (OSError, UnicodeError):
            errors.append(socket.EAI_NONAME)

    thread = threading.Thread(target=resolve, daemon=True, name="resolve")
    thread.start()
    thread.join(_RESOLVE_TIMEOUT_S)
    return errors[0] if errors else None


def _is_known_to_ssh(host: str) -> bool:
    """Whether ~/.ssh/config names another host, or a way to it. True if ssh rejects its configuration."""
    ssh = shutil.which("ssh")
    if ssh is None:
        return False
    try:
        done = subprocess.run(
            [ssh, "-G", "--", host], capture_output=True, text=True, errors="replace", timeout=_RESOLVE_TIMEOUT_S,
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return True
    hostname = re.search(r"^hostname (.+)$", done.stdout, re.MULTILINE)
    if hostname is not None and hostname[1].lower() != host.lower():
        return True
    return _REACHED_OTHERWISE.search(done.stdout) is not None
