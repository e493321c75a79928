"""Names for hosts and users that tell nobody who they are, so that a session can be shared."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..hub import Published
from ..records import Node, Process, RawRecord


class Pseudonyms:
    """A name for every host and user, the same wherever it stands; which is whose, nobody can tell without the key.

    A host is known by its name in hosts.toml and by the names it gives itself, and becomes `host-1a2b3c`; users become
    `user-1a2b3c`. Names are replaced as words, also inside paths and texts, with the domain behind a host's name.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for host in hosts:
            self.learn_host(host)
        for user in users:
            self.learn_user(user)

    def learn_host(self, name: str) -> None:
        """Every form of this name is replaced from now on."""
        short = name.partition(".")[0] if not re.fullmatch(r"[\d.:]+", name) else name
        self._learn(name, "host", short)
        self._learn(short, "host", short)

    def learn_user(self, name: str) -> None:
        """root and the like tell nobody anything, and stay."""
        if name not in _NOBODY:
            self._learn(name, "user", name)

    def host(self, name: str) -> str:
        """What a host is called."""
        if name:
            self.learn_host(name)
        return self._names.get(name, name)

    def in_text(self, text: str) -> str:
        """The text with every known name replaced."""
        if not self._names:
            return text
        if self._pattern is None:
            longest_first = sorted(self._names, key=len, reverse=True)
            words = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])({words})(?:\.[A-Za-z][\w-]*)*(?![A-Za-z0-9-])")
        return self._pattern.sub(lambda found: self._names[found[1]], text)

    def of_record(self, record: Published) -> Published:
        """The record with every text in it replaced."""
        self._learn_from(record)
        if isinstance(record, RawRecord):
            fields = self._in_value(msgspec.json.decode(record.raw))
            raw = msgspec.json.encode(fields)
            return replace(record, node=self.host(record.node), raw=raw)
        kind = type(record)
        changes = {name: self._in_value(getattr(record, name)) for name in _texts(kind)}
        return replace(record, node=self.host(record.node), **changes)

    def _learn_from(self, record: Published) -> None:
        if record.node:
            self.learn_host(record.node)
        if isinstance(record, Node):
            self.learn_host(record.hostname)
            if record.user:
                self.learn_user(record.user)
        elif isinstance(record, Process) and record.user:
            self.learn_user(record.user)

    def _learn(self, name: str, what: str, of: str) -> None:
        if len(name) > 1 and name not in self._names:
            digest = hashlib.blake2b(f"{what}:{of}".encode(), key=self._key, digest_size=3).hexdigest()
            self._names[name] = f"{what}-{digest}"
            self._pattern = None

    def _in_value(self, value: Any) -> Any:
        match value:
            case str():
                return self.in_text(value)
            case tuple():
                return tuple(map(self._in_value, value))
            case list():
                return list(map(self._in_value, value))
            case dict():
                return {self._in_value(name): self._in_value(one) for name, one in value.items()}
            case msgspec.Struct():
                return replace(value, **{name: self._in_value(getattr(value, name)) for name in _fields(type(value))})
        return value


#: Users that every machine has.
_NOBODY: Final = frozenset({"root", "nobody", "daemon", "ubuntu", "ec2-user", "centos", "admin"})
#: Texts that are numbers of things, not about people: changing them would only cost time.
_NO_TEXT: Final = frozenset({"agent", "uuid", "node", "boot_id", "capture"})
_text_fields: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind))


def _texts(kind: type) -> tuple[str, ...]:
    """The fields of a record that may hold a text."""
    if kind not in _text_fields:
        numbers = {int, float, bool, type(None)}
        found = [
            field.name for field in msgspec.structs.fields(kind)
            if field.name not in _NO_TEXT and not _plain(field.type) <= numbers
        ]  # fmt: skip
        _text_fields[kind] = tuple(found)
    return _text_fields[kind]


def _plain(annotation: Any) -> set[Any]:
    """The types of a field's union, without what annotates them."""
    described = msgspec.inspect.type_info(annotation)
    members = described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)
    plain = {
        msgspec.inspect.IntType: int, msgspec.inspect.FloatType: float, msgspec.inspect.BoolType: bool,
        msgspec.inspect.NoneType: type(None),
    }  # fmt: skip
    found = set()
    for member in members:
        inner = member.type if isinstance(member, msgspec.inspect.Metadata) else member
        found.add(plain.get(type(inner), type(inner)))
    return found


def key_of_this_user(folder: Path) -> bytes:
    """The key behind the pseudonyms, the same for all sessions of a folder, and in none of them. Raises OSError."""
    path = folder / ".pseudonyms"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return path.read_bytes()
    key = secrets.token_bytes(32)
    try:
        os.write(fd, key)
        os.fsync(fd)
    finally:
        os.close(fd)
    return key
