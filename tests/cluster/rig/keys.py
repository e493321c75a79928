"""Temporary keys, from ssh-keygen or, without OpenSSH, from asyncssh."""

import shutil
import subprocess
from pathlib import Path

from .detect import TOOL_PATH


def make(path: Path, passphrase: str = "") -> Path:
    """A new ed25519 key at `path` (0600) and its public half beside it."""
    program = shutil.which("ssh-keygen", path=TOOL_PATH)
    if program:
        subprocess.run(
            [program, "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    else:
        _make_with_asyncssh(path, passphrase)
    return path


def _make_with_asyncssh(path: Path, passphrase: str) -> None:
    import asyncssh

    key = asyncssh.generate_private_key("ssh-ed25519", comment=path.name)
    # OpenSSH's own format needs the bcrypt package to be encrypted; PKCS#8 does not.
    text = key.export_private_key("pkcs8-pem", passphrase) if passphrase else key.export_private_key()
    path.touch(0o600)
    path.write_bytes(text)
    path.with_name(f"{path.name}.pub").write_bytes(key.export_public_key())


def remove(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}.pub").unlink()


def public_line(path: Path) -> str:
    """The public half as one line of authorized_keys."""
    return path.with_name(f"{path.name}.pub").read_text().strip()


def known_hosts_line(names: list[str], port: int, host_key: str) -> str:
    """One line of known_hosts: a server's key under each of its names."""
    places = ",".join(name if port == 22 else f"[{name}]:{port}" for name in names)
    return f"{places} {' '.join(host_key.split()[:2])}\n"
