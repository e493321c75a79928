"""The hosts.toml that `gconsole config init` writes: every key, in comments, with its default, and one entry."""

from __future__ import annotations

import inspect
from pathlib import Path

from ..text.atomic_files import replace_same_mode
from .model import ConfigError
from .schema import Key, keys, sections, written
from .sections import Section

_HEAD = """\
# The nodes of a cluster, for gconsole. Try it: gconsole config show FILE
# A line that begins with "#" shows a key with its default, or with an example where it has none.
"""
_NODES = """\
# One entry for nodes that have everything in common; every key of [ssh] and [agent] may be set here too
# (but max_connecting). Names: node[001-064,071], @group (of ClusterShell), user@host:port, a,b.
[[nodes]]
hosts = "node[01-04]"
"""


def init(name: str, *, overwrite: bool = False) -> None:
    """Write the starter file. Raises ConfigError if it exists and is not to be overwritten, or cannot be written."""
    path = Path(name)
    try:
        if overwrite and path.exists():
            replace_same_mode(path, starter_text().encode())
        else:
            with path.open("xb") as file:
                file.write(starter_text().encode())
    except FileExistsError:
        raise ConfigError(name, "", "already exists; --force overwrites it") from None
    except OSError as error:
        raise ConfigError(name, "", f"cannot be written ({error.strerror})") from error


def starter_text() -> str:
    """The text of the starter file, made from the table of keys."""
    parts = [_HEAD]
    for name, struct in sections().items():
        lines = [f"# {_first_line(struct)}", f"[{name}]", *(_line(key) for key in keys(name).values())]
        parts.append("\n".join(lines) + "\n")
    more = [_line(key) for key in keys("nodes").values() if not key.required]
    parts.append(_NODES + "\n".join(more) + "\n")
    return "\n".join(parts)


def _line(key: Key) -> str:
    value = key.example if key.example is not None else key.default
    assignment = f"# {key.name} = {written(value)}"
    return f"{assignment:<37} # {key.help}"


def _first_line(struct: type[Section]) -> str:
    return inspect.getdoc(struct).splitlines()[0]  # type: ignore[union-attr]  # a test holds that each has one
