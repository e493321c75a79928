"""Value types of hosts.toml: type, pattern or range, and a description of the form."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..text.timespec import DURATION_PATTERN

#: A host in an ssh command: never empty, never beginning with "-" (it would be parsed as an option).
HOST_PATTERN = r"^[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$"
USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
_HOP = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"

# `extra` keys. "form": description of the pattern; "path": a path on the console's machine, `~` and relative paths are
# resolved; "global": cannot be overridden per node; "example": shown in the starter file.
LocalPath = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]+$", extra={"form": "a path", "path": True})]
Host = Annotated[str, Meta(pattern=HOST_PATTERN, extra={"form": "a host name or an address"})]
User = Annotated[str, Meta(pattern=USER_PATTERN, extra={"form": "a user name"})]
Jump = Annotated[
    str, Meta(pattern=rf"^{_HOP}(?:,{_HOP})*$", extra={"form": "[user@]host[:port], several separated by commas"})
]
Port = Annotated[int, Meta(ge=1, le=65535)]
Command = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f-][^\x00-\x1f]*$", extra={"form": "a command"})]
#: As LocalPath, and "" for none.
LocalFolder = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]*$", extra={"form": 'a folder, or ""', "path": True})]
Interface = Annotated[
    str,
    Meta(
        pattern=r"^([=^]?[A-Za-z0-9_.:%-]{1,64}(,[A-Za-z0-9_.-]{1,15})*)?$",
        extra={"form": 'an address, interface names separated by commas, or ""'},
    ),
]
RemotePath = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f]*)?$", extra={"form": 'an absolute path, or ""'})]
Line = Annotated[str, Meta(pattern=r"^\S([^\x00-\x1f]*\S)?$", extra={"form": "one line of text"})]
Tag = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:=/-]*$", extra={"form": "a word without spaces"})]
Filter = Annotated[str, Meta(pattern=r"^env:[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f]*$", extra={"form": "env:KEY=VALUE"})]

Limit = Annotated[int, Meta(ge=1 << 20, le=1 << 60)]
Age = Annotated[str, Meta(pattern=DURATION_PATTERN, extra={"form": "a duration, like 12h, 30d or 8w"})]

ModelText = Annotated[
    str, Meta(pattern=r"^[a-z0-9_]+ \S+( \S+)?$", extra={"form": "a class and one or two regexes, separated by spaces"})
]

Glob = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]+$", extra={"form": "an absolute path, may contain * and ?"})]

Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", extra={"form": "the name of a variable"})]
