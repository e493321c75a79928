"""Types of the keys that name hosts and users, and the commands between them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

#: A host in an ssh command: never empty, never beginning with "-" (it would be parsed as an option).
HOST_PATTERN = r"^[A-Za-z0-9_:][A-Za-z0-9_.:%-]*\Z"
USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z"
_HOP = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"

# Patterns end in `\Z`: `$` also matches before a final newline. `extra`: "form" describes the pattern.
Host = Annotated[str, Meta(pattern=HOST_PATTERN, extra={"form": "a host name or an address"})]
User = Annotated[str, Meta(pattern=USER_PATTERN, extra={"form": "a user name"})]
Jump = Annotated[
    str, Meta(pattern=rf"^{_HOP}(?:,{_HOP})*\Z", extra={"form": "[user@]host[:port], several separated by commas"})
]
#: Checked as a node set when the configuration is loaded.
Gateways = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_@][A-Za-z0-9_.,:@\[\]-]*\Z",
        extra={"form": "names of hosts: login1, login[1-4], user@login1:port"},
    ),
]
#: As one of Gateways, and "" for none.
Gateway = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.@:-]*)?\Z",
        extra={"form": 'the name of one host: login1, user@login1:port, or ""'},
    ),
]
GatewayCommand = Annotated[
    str,
    Meta(
        pattern=r"^[^\s\x00-\x1f{-][^\x00-\x1f]*\{node\}[^\x00-\x1f]*\Z",
        extra={"form": "a command that contains {node}"},
    ),
]
