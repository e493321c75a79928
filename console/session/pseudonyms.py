"""Names for hosts and users that tell nobody who they are, so that a session can be shared."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..config.nodeset import expand
from ..config.nodetext import BadNodeSet
from ..hub import Published
from ..records import Node, Process, RawRecord


class Pseudonyms:
    """A name for every host and user, the same wherever it stands; which is whose, nobody can tell without the key.

    A host is known by its name in hosts.toml and by the names it gives itself, and becomes `host-1a2b3c`, and so does
    every address; users become `user-1a2b3c`, also where only the path of a home tells one. Names are replaced as
    words, also inside paths, texts and sets like `node[1-4]`, with the domain behind a host's name.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._hosts: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for host in hosts:
            self.learn_host(host)
        for user in users:
            self.learn_user(user)

    def learn_host(self, name: str) -> None:
        """Every form of this name is replaced from now on."""
        short = name.partition(".")[0] if not re.fullmatch(r"[\d.:]+", name) else name
        for form in (name, short):
            if len(form) > 1 and form not in self._hosts:
                self._hosts[form] = self._other("host", short)
                self._pattern = None

    def learn_user(self, name: str) -> None:
        """root and the like tell nobody anything, and stay."""
        if len(name) > 1 and name not in _NOBODY and name not in self._users:
            self._users[name] = self._other("user", name)
            self._pattern = None

    def host(self, name: str) -> str:
        """What a host is called."""
        if name:
            self.learn_host(name)
        return self._hosts.get(name, name)

    def in_text(self, text: str) -> str:
        """The text with every known name replaced, and every address and home."""
        if "[" in text:
            text = _SET.sub(self._of_set, text)
        if "/" in text:
            text = _HOME.sub(lambda found: found[1] + self._of_user(found[2]), text)
        if text.count(".") >= 3:
            text = _V4.sub(self._of_address, text)
        if text.count(":") >= 2:
            text = _V6.sub(self._of_v6, text)
        if not self._hosts and not self._users:
            return text
        if self._pattern is None:
            hosts, users = ("|".join(map(re.escape, sorted(names, key=len, reverse=True)))
                            for names in (self._hosts, self._users.keys() - self._hosts))  # fmt: skip
            ways = [rf"(?P<host>{hosts})(?:\.[A-Za-z][\w-]*)*"] * bool(hosts) + [rf"(?P<user>{users})"] * bool(users)
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(ways)})(?![A-Za-z0-9])")
        return self._pattern.sub(self._of_word, text)

    def _of_word(self, found: re.Match[str]) -> str:
        named = found.groupdict()
        return self._hosts[named["host"]] if named.get("host") else self._users[named["user"]]

    def _of_user(self, name: str) -> str:
        return name if name in _NOBODY else self._other("user", name)

    def _of_set(self, found: re.Match[str]) -> str:
        """`node[1-4]`, where that names hosts."""
        try:
            names = [host.name for host in expand(found[0])]
        except BadNodeSet:
            return found[0]
        if not any(name.partition(".")[0] in self._hosts for name in names):
            return found[0]
        return ",".join(map(self.host, names))

    def _of_address(self, found: re.Match[str]) -> str:
        return self._address(found[0])

    def _of_v6(self, found: re.Match[str]) -> str:
        text = found[0]
        bare = text[:-1] if text.endswith(":") and not text.endswith("::") else text
        if not _V6_BEGINS.match(bare) and bare.count(":") < 7:
            return text
        return self._address(bare) + text[len(bare) :]

    def _address(self, text: str) -> str:
        try:
            address = ip_address(text)
        except ValueError:
            return text
        return text if address.is_loopback or address.is_unspecified else self._other("host", text)

    def _other(self, what: str, of: str) -> str:
        digest = hashlib.blake2b(f"{what}:{of}".encode(), key=self._key, digest_size=3).hexdigest()
        return f"{what}-{digest}"

    def learn(self, record: Published) -> None:
        """Every name that a record tells is replaced from now on."""
        if record.node:
            self.learn_host(record.node)
        if isinstance(record, Node):
            self.learn_host(record.hostname)
            if record.user:
                self.learn_user(record.user)
        elif isinstance(record, Process) and record.user:
            self.learn_user(record.user)

    def of_record(self, record: Published) -> Published:
        """The record with every text in it replaced."""
        self.learn(record)
        if isinstance(record, RawRecord):
            fields = self._in_value(msgspec.json.decode(record.raw))
            raw = msgspec.json.encode(fields)
            return replace(record, node=self.host(record.node), raw=raw)
        kind = type(record)
        changes = {name: self._in_value(getattr(record, name)) for name in _texts(kind)}
        return replace(record, node=self.host(record.node), **changes)

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


#: Where people's own folders lie, and whose one is; what names several hosts; what may be an address.
_HOME: Final = re.compile(r"(/(?:home|Users|users)/)([^/\s:,;'\"()\[\]<>]+)")
_SET: Final = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]*+(?:\[[0-9,-]++\][A-Za-z0-9_.-]*+)+")
_V4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_V6: Final = re.compile(r"(?<![\w:.])[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}(?!\w)")
#: How addresses of hosts begin; what else looks like one is a time, a name of C++, an address on a bus.
_V6_BEGINS: Final = re.compile(r"(?i)fe80|f[cd][0-9a-f]{2}|[23][0-9a-f]{3}")
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
