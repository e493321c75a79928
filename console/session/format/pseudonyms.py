"""Names for hosts and users that tell nobody who they are, so that a session can be shared."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...config.nodeset import expand
from ...config.nodeset_parser import BadNodeSet, terms
from ...core.bus import Published
from ...records import Node, Process, RawRecord
from ...text.secrets import HIDDEN

#: Names that one node may be the first to tell: what it invents is looked for in every text of every node.
MAX_NAMES_PER_NODE: Final = 1_024


class Pseudonyms:
    """A name for every host and user, the same wherever it stands; which is whose, nobody can tell without the key.

    A host is known by its name in hosts.toml and by the names it gives itself, and becomes `host-1a2b3c4d5e`, and so
    does every address; users become `user-1a2b3c4d5e`, also where only the path of a home tells one. Names are replaced
    as words, also inside paths, texts and sets like `node[1-4]`, with the domain behind a host's name.

    A node that tells more than `MOST_NAMES` of them has no text any more: a name that is not known is not replaced.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._hosts: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._beginnings: set[str] = set()  # of hosts' names, up to their first digit
        self._pattern: re.Pattern[str] | None = None
        self._told: Counter[str] = Counter()  # names, by the node that was the first to tell them
        self._silenced: dict[str, bool] = {}  # nodes that told too many: whether that has been said
        for host in hosts:
            self.learn_host(host)
        for user in users:
            self.learn_user(user)

    def learn_host(self, name: str) -> None:
        """Every form of this name is replaced from now on."""
        short = _short(name)
        for form in (name, short):
            if len(form) > 1 and form not in self._hosts:
                self._hosts[form] = self._other("host", short)
                self._beginnings.add(_beginning(form))
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

    def newly_silenced(self) -> list[str]:
        """Nodes that have told too many names, each once."""
        found = [node for node, was_said in self._silenced.items() if not was_said]
        self._silenced.update(dict.fromkeys(found, True))
        return found

    def in_text(self, text: str) -> str:
        """The text with every known name replaced, and every address and home."""
        if "[" in text:
            text = self._in_sets(text)
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

    def _in_sets(self, text: str) -> str:
        """`node[1-4]`, where that names hosts; of those beyond `_MOST_OF_SETS` each set has one name as a whole."""
        left = _MOST_OF_SETS

        def other(found: re.Match[str]) -> str:
            nonlocal left
            if _beginning(found[0]) not in self._beginnings:
                return found[0]
            try:
                size = sum(term.count for term in terms(found[0]))
            except BadNodeSet:
                return found[0]
            if size > left:
                return self._other("hosts", found[0])
            left -= size
            return self._of_set(found[0])

        return _SET.sub(other, text)

    def _of_set(self, text: str) -> str:
        try:
            names = [host.name for host in expand(text)]
        except BadNodeSet:
            return text
        if not any(_short(name) in self._hosts for name in names):
            return text
        return ",".join(self._hosts.get(name) or self._other("host", _short(name)) for name in names)

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
        digest = hashlib.blake2b(f"{what}:{of}".encode(), key=self._key, digest_size=5)
        return f"{what}-{digest.hexdigest()}"  # of 16,384 hosts two have one name in one session of ten thousand

    def learn(self, record: Published) -> None:
        """Every name that a record tells is replaced from now on."""
        if record.node:
            self.learn_host(record.node)
        if isinstance(record, Node) and self._may_tell(record.node, self._hosts, record.hostname):
            self.learn_host(record.hostname)
        if isinstance(record, Node | Process) and record.user and self._may_tell(record.node, self._users, record.user):
            self.learn_user(record.user)

    def _may_tell(self, node: str, known: Mapping[str, str], name: str) -> bool:
        if name in known or name in _NOBODY:
            return False
        if self._told[node] >= MAX_NAMES_PER_NODE or len(name) > _MOST_LETTERS:
            self._silenced.setdefault(node, False)
            return False
        self._told[node] += 1
        return True

    def of_record(self, record: Published) -> Published:
        """The record with every text in it replaced."""
        self.learn(record)
        in_text = _hidden if record.node in self._silenced else self.in_text
        if isinstance(record, RawRecord):
            fields = msgspec.json.decode(record.raw)
            told = {name: one for name, one in fields.items() if name not in _HEAD}
            raw = msgspec.json.encode({**fields, **_in_value(told, in_text)} if in_text is not _hidden
                                      else {name: fields[name] for name in _HEAD if name in fields})  # fmt: skip
            return replace(record, node=self.host(record.node), raw=raw)
        changes = {name: _in_value(getattr(record, name), in_text) for name in _texts(type(record))}
        return replace(record, node=self.host(record.node), **changes)


def _in_value(value: Any, in_text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return in_text(value)
        case tuple():
            return tuple(_in_value(one, in_text) for one in value)
        case list():
            return [_in_value(one, in_text) for one in value]
        case dict():
            return {in_text(name): _in_value(one, in_text) for name, one in value.items()}
        case msgspec.Struct():
            return replace(value, **{name: _in_value(getattr(value, name), in_text) for name in _texts(type(value))})
    return value


def _hidden(text: str) -> str:
    return HIDDEN if text else text


def _beginning(name: str) -> str:
    return re.match(r"[^\d\[]*", name)[0]  # type: ignore[index]  # it matches nothing, too


def _short(name: str) -> str:
    """A host's name without its domain; an address whole."""
    return name.partition(".")[0] if not re.fullmatch(r"[\d.:]+", name) else name


#: Where people's own folders lie, and whose one is; what names several hosts; what may be an address.
_HOME: Final = re.compile(r"(/(?:home|Users|users)/)([^/\s:,;'\"()\[\]<>]+)")
_SET: Final = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]*+(?:\[[0-9,-]++\][A-Za-z0-9_.-]*+)+")
#: So many hosts are named one by one in one text: it is short, and what becomes of it is written.
_MOST_OF_SETS: Final = 512
_V4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_V6: Final = re.compile(r"(?<![\w:.])[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}(?!\w)")
#: How addresses of hosts begin; what else looks like one is a time, a name of C++, an address on a bus.
_V6_BEGINS: Final = re.compile(r"(?i)fe80|f[cd][0-9a-f]{2}|[23][0-9a-f]{3}")
#: Users that every machine has.
_NOBODY: Final = frozenset({"root", "nobody", "daemon", "ubuntu", "ec2-user", "centos", "admin"})
#: No host and no user has a longer name (hosts: 253 letters).
_MOST_LETTERS: Final = 255
#: What every record has, and no text in it.
_HEAD: Final = ("kind", "node", "agent", "seq", "t", "mono", "rx")
#: Texts that are numbers of things, not about people: changing them would only cost time.
_NO_TEXT: Final = frozenset({"agent", "uuid", "node", "boot_id", "capture"})
_KEY_BYTES: Final = 32
_text_fields: dict[type, tuple[str, ...]] = {}


def _texts(kind: type) -> tuple[str, ...]:
    """The fields of a record, or of a part of one, that may hold a text; one of a few words that are ours is none."""
    if kind not in _text_fields:
        numbers = {int, float, bool, type(None), msgspec.inspect.LiteralType}
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
    if not path.exists():
        fd, draft = tempfile.mkstemp(prefix=".pseudonyms.", dir=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):  # another console was first; nobody ever sees half a key
                os.link(draft, path)
        finally:
            Path(draft).unlink()
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:  # with an empty one anybody could find out who is behind a name
        raise OSError(errno.EINVAL, f"{path} is no key: remove it, and names will be others from then on")
    return key
