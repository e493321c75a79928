"""Pseudonyms: keyed replacement of host and user names and addresses, so that a session can be shared."""

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
from ...records import Log, Node, NodeState, Process, RawRecord
from ...text.secrets import HIDDEN

#: Upper bound of the names one node may introduce: each is searched for in every text of every node.
MAX_NAMES_PER_NODE: Final = 1_024


class Pseudonyms:
    """Replaces each host and user name by the same pseudonym everywhere; not reversible without the key.

    Names of hosts (in hosts.toml, and reported by nodes) in any case, their domains and addresses become
    `host-1a2b3c4d5e`; users, also those in paths of home directories, become `user-1a2b3c4d5e`. Addresses of mail and
    of hardware and boot ids are replaced, too. Names are replaced as words, also inside paths, texts and sets like
    `node[1-4]`, with the domain after a host's name.

    All texts of a node that introduces more than `MAX_NAMES_PER_NODE` names are hidden: its further names are unknown.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._hosts: dict[str, str] = {}  # by name in lower case: case does not matter in DNS
        self._users: dict[str, str] = {}
        self._prefixes: set[str] = set()  # of host names, up to the first digit
        self._boots: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._introduced: Counter[str] = Counter()  # names by the node that introduced them
        self._silenced: dict[str, bool] = {}  # nodes beyond the limit: whether that was reported
        for host in hosts:
            self.learn_host(host)
        for user in users:
            self.learn_user(user)

    def learn_host(self, name: str) -> None:
        """Replace this host name, with and without its domain, from now on."""
        name = name.lower()
        short, domain = _short(name), _domain(name)
        for form, identity in ((name, short), (short, short), (domain, domain)):
            if len(form) > 1 and form not in self._hosts:
                self._hosts[form] = self._other("host", identity)
                self._prefixes.add(_prefix(form))
                self._pattern = None

    def learn_user(self, name: str) -> None:
        """Replace this user name from now on; common names such as root stay."""
        if len(name) > 1 and name not in _COMMON_USERS and name not in self._users:
            self._users[name] = self._other("user", name)
            self._pattern = None

    def host(self, name: str) -> str:
        """Return the pseudonym of a host; "" for ""."""
        if name:
            self.learn_host(name)
        return self._hosts.get(name.lower(), name)

    def newly_silenced(self) -> list[str]:
        """Return the nodes newly beyond the limit of names, each once."""
        nodes = [node for node, is_reported in self._silenced.items() if not is_reported]
        self._silenced.update(dict.fromkeys(nodes, True))
        return nodes

    def in_text(self, text: str) -> str:
        """Return the text with known names, addresses and home directories replaced."""
        if "[" in text:
            text = self._in_sets(text)
        if "/" in text:
            text = _HOME.sub(lambda match: match[1] + self._of_user(match[2]), text)
        if text.count(".") >= 3:
            text = _V4.sub(self._of_address, text)
        if "@" in text:
            text = _MAIL.sub(self._of_mail, text)
        if text.count(":") >= 2 or text.count("-") >= 4:
            text = _HARDWARE.sub(self._of_hardware, text)
            text = _UUID.sub(self._of_uuid, text)
        if text.count(":") >= 2:
            text = _V6.sub(self._of_v6, text)
        if not self._hosts and not self._users:
            return text
        if self._pattern is None:
            hosts, users = ("|".join(map(re.escape, sorted(names, key=len, reverse=True)))
                            for names in (self._hosts, self._users.keys() - self._hosts))  # fmt: skip
            forms = [rf"(?P<host>(?i:{hosts}))(?:\.[A-Za-z][\w-]*)*"] * bool(hosts) + [rf"(?P<user>{users})"] * bool(
                users
            )
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(forms)})(?![A-Za-z0-9])")
        return self._pattern.sub(self._of_word, text)

    def _of_word(self, match: re.Match[str]) -> str:
        named = match.groupdict()
        return self._hosts[named["host"].lower()] if named.get("host") else self._users[named["user"]]

    def _of_user(self, name: str) -> str:
        return name if name in _COMMON_USERS else self._other("user", name)

    def _of_mail(self, match: re.Match[str]) -> str:
        domain = match["domain"].lower()
        if _short(domain) in self._hosts:
            return match[0]  # user@host: both are replaced as names
        return f"{self._of_user(match['user'])}@{self._other('host', domain)}"

    def _of_hardware(self, match: re.Match[str]) -> str:
        digits = re.sub("[:-]", "", match[0]).lower()
        return match[0] if digits.strip("0") in ("", "f" * 12) else self._other("mac", digits)

    def _of_uuid(self, match: re.Match[str]) -> str:
        return self._other("boot", match[0]) if match[0] in self._boots else match[0]

    def _in_sets(self, text: str) -> str:
        """Replace sets like `node[1-4]` of known hosts; beyond `_MAX_SET_HOSTS` hosts a set gets one pseudonym."""
        left = _MAX_SET_HOSTS

        def other(match: re.Match[str]) -> str:
            nonlocal left
            if _prefix(match[0].lower()) not in self._prefixes:
                return match[0]
            try:
                size = sum(term.count for term in terms(match[0]))
            except BadNodeSet:
                return match[0]
            if size > left:
                return self._other("hosts", match[0])
            left -= size
            return self._of_set(match[0])

        return _SET.sub(other, text)

    def _of_set(self, text: str) -> str:
        try:
            names = [host.name for host in expand(text)]
        except BadNodeSet:
            return text
        names = [name.lower() for name in names]
        if not any(_short(name) in self._hosts for name in names):
            return text
        return ",".join(self._hosts.get(name) or self._other("host", _short(name)) for name in names)

    def _of_address(self, match: re.Match[str]) -> str:
        return self._address(match[0])

    def _of_v6(self, match: re.Match[str]) -> str:
        text = match[0]
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
        return f"{what}-{digest.hexdigest()}"  # 40 bits: of 16,384 hosts two collide in one session of ten thousand

    def learn(self, record: Published) -> None:
        """Replace the names in a record from now on."""
        if record.node:
            self.learn_host(record.node)
        if isinstance(record, NodeState) and record.via:  # of the console, as the next one: not what a node names
            self.learn_host(record.via)
        if isinstance(record, Log) and record.source == "console" and record.fault == "gateway_lost":
            self.learn_host(record.subject or "")
        if isinstance(record, Node):
            if self._admit(record.node, self._hosts, record.hostname.lower()):
                self.learn_host(record.hostname)
            if _UUID.fullmatch(record.boot_id) and len(self._boots) < MAX_NAMES_PER_NODE:
                self._boots.add(record.boot_id)
        if isinstance(record, Node | Process) and record.user and self._admit(record.node, self._users, record.user):
            self.learn_user(record.user)

    def _admit(self, node: str, names: Mapping[str, str], name: str) -> bool:
        if name in names or name in _COMMON_USERS:
            return False
        if self._introduced[node] >= MAX_NAMES_PER_NODE or len(name) > _MAX_NAME_LETTERS:
            self._silenced.setdefault(node, False)
            return False
        self._introduced[node] += 1
        return True

    def of_record(self, record: Published) -> Published:
        """Return the record with the names in all its texts replaced."""
        self.learn(record)
        in_text = _hidden if record.node in self._silenced else self.in_text
        if isinstance(record, RawRecord):
            fields = msgspec.json.decode(record.raw)
            content = {name: value for name, value in fields.items() if name not in _HEAD}
            raw = msgspec.json.encode({**fields, **_in_value(content, in_text)} if in_text is not _hidden
                                      else {name: fields[name] for name in _HEAD if name in fields})  # fmt: skip
            return replace(record, node=self.host(record.node), raw=raw)
        changes = {name: _in_value(getattr(record, name), in_text) for name in _texts(type(record))}
        if isinstance(record, Node) and record.boot_id:
            changes["boot_id"] = self._other("boot", record.boot_id)
        return replace(record, node=self.host(record.node), **changes)


def _in_value(value: Any, in_text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return in_text(value)
        case tuple():
            return tuple(_in_value(item, in_text) for item in value)
        case list():
            return [_in_value(item, in_text) for item in value]
        case dict():
            return {in_text(name): _in_value(item, in_text) for name, item in value.items()}
        case msgspec.Struct():
            return replace(value, **{name: _in_value(getattr(value, name), in_text) for name in _texts(type(value))})
    return value


def _hidden(text: str) -> str:
    return HIDDEN if text else text


def _prefix(name: str) -> str:
    return re.match(r"[^\d\[]*", name)[0]  # type: ignore[index]  # it matches nothing, too


def _short(name: str) -> str:
    """A host's name without its domain; an address whole."""
    return name.partition(".")[0] if not re.fullmatch(r"[\d.:]+", name) else name


def _domain(name: str) -> str:
    """The domain of a host's full name, of two labels or more; "" without one."""
    domain = "" if re.fullmatch(r"[\d.:]+", name) else name.partition(".")[2]
    return domain if "." in domain else ""


#: Home directories with their users; sets of hosts; addresses.
_HOME: Final = re.compile(r"(/(?:home|Users|users)/)([^/\s:,;'\"()\[\]<>]+)")
_SET: Final = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]*+(?:\[[0-9,-]++\][A-Za-z0-9_.-]*+)+")
#: Upper bound of the hosts expanded from the sets of one text, which limits its length when it is written.
_MAX_SET_HOSTS: Final = 512
_V4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_V6: Final = re.compile(r"(?<![\w:.])[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}(?!\w)")
#: Hardware addresses: 6 to 20 pairs of digits (Ethernet, InfiniBand), or a GUID in four groups. Mail addresses.
_HARDWARE: Final = re.compile(
    r"(?<![\w:-])(?:[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2}){5,19}|(?:-[0-9a-fA-F]{2}){5,19})|"
    r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3})(?![\w:-])"
)
_MAIL: Final = re.compile(
    r"(?<![A-Za-z0-9._%+-])(?P<user>[A-Za-z0-9._%+-]{1,64}+)@(?P<domain>(?:[A-Za-z0-9-]{1,63}+\.){1,8}[A-Za-z]{2,24})(?![\w@])"
)
_UUID: Final = re.compile(r"(?<![\w-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])")
#: Prefixes of host addresses; other matches are times, C++ names, PCI addresses.
_V6_BEGINS: Final = re.compile(r"(?i)fe80|f[cd][0-9a-f]{2}|[23][0-9a-f]{3}")
#: Users of most machines; they identify nobody.
_COMMON_USERS: Final = frozenset({"root", "nobody", "daemon", "ubuntu", "ec2-user", "centos", "admin"})
#: Upper bound of a name (hosts: 253 letters).
_MAX_NAME_LETTERS: Final = 255
#: Fields of every record without text.
_HEAD: Final = ("kind", "node", "agent", "seq", "t", "mono", "rx")
#: Text fields that hold identifiers of things, never names.
_NO_TEXT: Final = frozenset({"agent", "uuid", "node", "boot_id", "capture"})  # `boot_id` has a rule of its own
_KEY_BYTES: Final = 32
_text_fields: dict[type, tuple[str, ...]] = {}


def _texts(kind: type) -> tuple[str, ...]:
    """The fields of a record or nested struct that may hold free text; literals are not."""
    if kind not in _text_fields:
        numbers = {int, float, bool, type(None), msgspec.inspect.LiteralType}
        names = [
            field.name for field in msgspec.structs.fields(kind)
            if field.name not in _NO_TEXT and not _plain(field.type) <= numbers
        ]  # fmt: skip
        _text_fields[kind] = tuple(names)
    return _text_fields[kind]


def _plain(annotation: Any) -> set[Any]:
    """The member types of a field, without their metadata."""
    described = msgspec.inspect.type_info(annotation)
    members = described.types if isinstance(described, msgspec.inspect.UnionType) else (described,)
    plain = {
        msgspec.inspect.IntType: int, msgspec.inspect.FloatType: float, msgspec.inspect.BoolType: bool,
        msgspec.inspect.NoneType: type(None),
    }  # fmt: skip
    types = set()
    for member in members:
        inner = member.type if isinstance(member, msgspec.inspect.Metadata) else member
        types.add(plain.get(type(inner), type(inner)))
    return types


def key_of_this_user(folder: Path) -> bytes:
    """Return the key of the pseudonyms: one per sessions folder, stored outside the sessions. Raises OSError."""
    path = folder / ".pseudonyms"
    if not path.exists():
        fd, draft = tempfile.mkstemp(prefix=".pseudonyms.", dir=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):  # another console was first; the link is atomic
                os.link(draft, path)
        finally:
            Path(draft).unlink()
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:  # with an empty key anybody could recompute the pseudonyms
        raise OSError(errno.EINVAL, f"{path}: invalid key; remove it to create a new one, which changes all pseudonyms")
    return key
