"""The kinds of nodes: a plain one, and one for each failure of real nodes. Each is a real server."""

from dataclasses import dataclass
from typing import Literal

# The password of every account of a node, and its entry in the nodes' /etc/shadow. Not a secret.
PASSWORD = "open sesame"
PASSWORD_HASH = (
    "$6$rounds=1000$CMWs7SNZhEd9..Po$"
    "y82qEinTkOVjPDE7bAB2VS6XrBkgeLsixCGj8Y5kKwoy6/D.oAub//Nc2JSjzN4hRfoYmym5ocTntpqtpgvrd/"
)

BANNER = "*** Authorised users only. All activity on this system is logged. ***\n"
SHELL_NOISE = "Loading cuda/12.4\nWelcome to the cluster. Quota: 83 % of 10 TiB used.\n"


@dataclass(frozen=True)
class Kind:
    """Properties of one kind of node; the defaults are a plain node."""

    name: str
    what: str
    python: Literal["own", "none", "3.6", "old"] = "own"
    login: Literal["key", "wrong_key", "password"] = "key"
    shell: Literal["plain", "noisy", "hangs"] = "plain"
    listener: Literal["server", "hangs", "throttles", "closed"] = "server"
    home_read_only: bool = False
    noexec: bool = False
    sudo: bool = False

    @property
    def needs_namespaces(self) -> bool:
        return self.home_read_only or self.noexec or self.sudo


KINDS = {
    kind.name: kind
    for kind in (
        Kind("plain", "a healthy node"),
        Kind(
            "noisy",
            "a banner before login, text on stdout and stderr before the output of every command",
            shell="noisy",
        ),
        Kind("no_python", "login works, there is no python3", python="none"),
        Kind("python36", "python3 is Python 3.6", python="3.6"),
        Kind("old_python", "python3 is Python 2.7", python="old"),
        Kind("readonly_home", "read-only home", home_read_only=True),
        Kind("noexec_cache", "nothing can be executed from /tmp, /var/tmp, /run, /dev/shm and the home", noexec=True),
        Kind("hang_login", "TCP is accepted, the server never sends", listener="hangs"),
        Kind("hang_shell", "login works, no command ever starts", shell="hangs"),
        Kind("throttle", "connections are closed on accept, as sshd does past MaxStartups", listener="throttles"),
        Kind("refuse", "connection refused by", listener="closed"),
        Kind("wrong_key", "our key is not authorised", login="wrong_key"),
        Kind("password_only", "keys are rejected, a password is required", login="password"),
        Kind("sudo", "login as an unprivileged account that may use sudo without a password", sudo=True),
    )
}
