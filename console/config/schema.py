"""The table of configuration keys, derived from the structs of `sections`; value checks; the starter file."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from ..text.atomic_files import replace_same_mode
from ..text.timespec import TimeSpecError, duration_s
from .model import Config, ConfigError, NodeConfig
from .sections import ClusterConfig, NodeEntry, Section, WatchRule

Value = str | int | float | bool | tuple[str, ...] | None

#: Names of types in errors.
_KINDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes",
    tuple: "a list of texts in quotes",
}  # fmt: skip
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


#: Tables that may occur several times, [[nodes]] and [[watch.rule]].
ENTRIES: Mapping[str, type[Section]] = {"nodes": NodeEntry, "watch.rule": WatchRule}


class BadValue(Exception):
    """An invalid value of a key; `nearest` is a suggestion, or ""."""

    def __init__(self, text: str, nearest: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.nearest = nearest


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one section: type, default, bounds and help."""

    section: str
    name: str
    kind: type  # bool, int, float, str or tuple (of str)
    annotation: Any  # of the struct's field; `check` converts to it
    default: Value
    help: str
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""  # of a text, or of each text of a list
    most: int | None = None  # texts in a list
    form: str = ""  # the pattern, in words
    is_path: bool = False  # a path on the console's machine
    is_url: bool = False  # its path may be a secret, which is not shown
    per_node: bool = False  # may be overridden in a [[nodes]] entry
    example: Any = None

    def __str__(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"GCONSOLE_{self.section}_{self.name}".upper()

    def check(self, value: object) -> Value:
        """`value`, from TOML or a caller, converted to the key's type. Raises BadValue."""
        try:
            if value is not None:  # the struct allows it for a key that is not set
                return msgspec.convert(value, self.annotation)  # type: ignore[no-any-return]
        except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for bytes of an environment variable
            pass
        raise self._error(value)

    def parse(self, text: str) -> Value:
        """The value of the text of an environment variable or a flag. Raises BadValue."""
        text = text.strip()
        if self.kind is bool:
            if text.lower() not in _WORDS:
                raise BadValue(f"must be true or false, is {shown(text)}")
            return _WORDS[text.lower()]
        if self.kind is int and re.fullmatch(r"[+-]?[0-9](_?[0-9]){0,30}", text):
            return self.check(int(text))
        if self.kind is float and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return self.check(float(text))
        if self.kind is tuple:
            return self.check([part.strip() for part in text.split(",")])
        return self.check(text)

    def _error(self, value: object) -> BadValue:
        """Why `check` refused a value: its type, else its constraint."""
        if self.kind is tuple and isinstance(value, list | tuple):
            others = [item for item in value if not isinstance(item, str)]
            if others:
                return BadValue(f"must be {_KINDS[tuple]}, contains {shown(others[0])}")
            if self.most is not None and len(value) > self.most:
                return BadValue(f"must have at most {self.most} items, has {len(value)}")
            value = next(item for item in value if not re.search(self.pattern, item))
        elif type(value) is not self.kind and not (self.kind is float and type(value) is int):
            is_what = str(value) if isinstance(value, float) else shown(value)  # 22.0, not 22
            return BadValue(f"must be {_KINDS[self.kind]}{self._in_seconds(value)}, is {is_what}")
        if self.choices:
            allowed = " or ".join(shown(choice) for choice in self.choices)
            near = nearest(str(value), self.choices)
            return BadValue(f"must be {allowed}, is {shown(value)}", shown(near) if near else "")
        allowed = self.form or f"{shown(self.minimum)} to {shown(self.maximum)}"
        return BadValue(f"must be {allowed}, is {shown(value)}")

    def _in_seconds(self, value: object) -> str:
        """` of seconds` for a key in seconds, with an example if the value is a duration with a unit; else ""."""
        if not (self.name.endswith("_s") and isinstance(value, str)):
            return ""
        try:
            return f" of seconds, e.g. {written(duration_s(value))}"
        except TimeSpecError:
            return " of seconds"


def written(value: object) -> str:
    """A value in TOML syntax, or a description if TOML cannot express it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, int) and abs(value) > 1 << 64:
        return "a number beyond 64 bits"
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(item) for item in value)}]"
    return "a table" if isinstance(value, dict) else str(value)


def shown(value: object) -> str:
    """A value in TOML syntax, cut to what fits into an error."""
    if isinstance(value, list | tuple):
        value = value[:20]
    text = written(value[:100] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def nearest(word: str, words: Iterable[str]) -> str:
    """The most similar one of `words`, or ""."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)), "")


@cache
def sections() -> Mapping[str, type[Section]]:
    """The sections of hosts.toml beside [[nodes]]: [cluster], and every field of `Config` that is a Section."""
    return {"cluster": ClusterConfig, **_sections_of(Config)}


@cache
def keys(section: str) -> Mapping[str, Key]:
    """The keys of one section or of `ENTRIES` by name, in the order of its struct; "nodes": keys of entries only."""
    struct = ENTRIES.get(section) or sections()[section]
    annotations = get_type_hints(struct, include_extras=True)
    return {field.name: _key(section, field, annotations[field.name]) for field in _fields(struct)}


@cache
def all_keys() -> Mapping[str, Key]:
    """Every key of the sections by full name ("ssh.user")."""
    return {str(key): key for section in sections() for key in keys(section).values()}


@cache
def overrides() -> Mapping[str, Key]:
    """The keys of other sections that a [[nodes]] entry may set, by bare name."""
    own = [section for section in sections() if section in per_node_sections()]  # the others take 5 ms of each start
    return {key.name: key for section in own for key in keys(section).values() if key.per_node}


@cache
def variables() -> Mapping[str, Key]:
    """Every environment variable that is read."""
    return {key.variable: key for key in all_keys().values()}


def _sections_of(struct: type[msgspec.Struct]) -> dict[str, type[Section]]:
    kinds = get_type_hints(struct)
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}


@cache
def per_node_sections() -> frozenset[str]:
    """The per-node sections: the Section fields of `NodeConfig`."""
    return frozenset(_sections_of(NodeConfig))


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _key(section: str, field: inspect.Field, annotation: Any) -> Key:
    """The Key of one field of a section's struct."""
    about: dict[str, Any] = {}
    kind = _describe(field.type, about)
    return Key(
        section=section, name=field.name, kind=kind, annotation=annotation, required=field.required,
        default=None if field.required else field.default, help=about.get("description", ""),
        minimum=about.get("ge"), maximum=about.get("le"), choices=about.get("choices", ()), most=about.get("most"),
        pattern=about.get("pattern", ""), form=about.get("form", ""), is_path=about.get("path", False),
        is_url=about.get("url", False),
        per_node=section in per_node_sections() and not about.get("global", False), example=about.get("example"),
    )  # fmt: skip


def _describe(described: inspect.Type, about: dict[str, Any]) -> type:
    """The Python type of a field; bounds, pattern and description are added to `about`."""
    match described:
        case inspect.Metadata(type=inner, extra_json_schema=schema, extra=extra):
            about.update(schema or {})
            about.update(extra or {})
            return _describe(inner, about)
        case inspect.UnionType(types=members):
            (inner,) = (member for member in members if not isinstance(member, inspect.NoneType))
            return _describe(inner, about)
        case inspect.IntType(ge=low, le=high) | inspect.FloatType(ge=low, le=high):
            about.update(ge=low, le=high)
            return int if isinstance(described, inspect.IntType) else float
        case inspect.StrType(pattern=pattern):
            about.update(pattern=pattern or "")
            return str
        case inspect.LiteralType(values=values):
            about.update(choices=tuple(str(value) for value in values))
            return str
        case inspect.VarTupleType(item_type=inner, max_length=most):
            about.update(most=most)
            _describe(inner, about)
            return tuple
        case inspect.BoolType():
            return bool
    raise TypeError(f"a configuration field cannot be {described!r}")


_HEAD = """\
# The nodes of a cluster, for gconsole. Try it: gconsole config show FILE
# Lines that begin with "#" show a key with its default, or with an example if it has none.
"""
_NODES = """\
# One entry per group of nodes with the same settings; every key of [ssh] and [agent] except max_connecting
# may be set here too. Names: node[001-064,071], @group (of ClusterShell), user@host:port, a,b.
[[nodes]]
hosts = "node[01-04]"
"""
_RULES = """\
# What `gconsole watch` does about findings; one table per rule.
# [[watch.rule]]
"""


def init(name: str, *, overwrite: bool = False) -> None:
    """Write the starter file. Raises ConfigError if it exists and `overwrite` is false, or cannot be written."""
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
    """The starter file: every key, commented out, with its default, and one entry."""
    parts = [_HEAD]
    for name, struct in sections().items():
        lines = [f"# {_first_line(struct)}", f"[{name}]", *(_line(key) for key in keys(name).values())]
        parts.append("\n".join(lines) + "\n")
    more = [_line(key) for key in keys("nodes").values() if not key.required]
    parts.append(_NODES + "\n".join(more) + "\n")
    parts.append(_RULES + "\n".join(map(_line, keys("watch.rule").values())) + "\n")
    return "\n".join(parts)


def _line(key: Key) -> str:
    value = key.example if key.example is not None else key.default
    assignment = f"# {key.name} = {written(value)}"
    return f"{assignment:<37} # {key.help}"


def _first_line(struct: type[Section]) -> str:
    return getdoc(struct).splitlines()[0]  # type: ignore[union-attr]  # a test holds that each has one
