"""JSON documents: the only way by which reports, listings and responses leave the console, without secrets."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin

import msgspec

from .secrets import HIDDEN, SUSPECT, names_a_secret, value_without_secrets, without_secrets, words_without_secrets

#: JSON for programs, printed without a change: a terminal gets it through a sanitising stream.
JsonText = NewType("JsonText", str)
_NO_TEXT: Final = (int, float, bool, type(None))


class NewSecret(str):
    """A secret that this command has just made, and hands to the user who started it: the only one that is printed."""


def encode(document: object) -> bytes:
    """The document as JSON on one line."""
    return msgspec.json.encode(redacted(document))


def pretty(document: object, indent: int = 2) -> JsonText:
    """The document as indented JSON, without a newline at its end."""
    return JsonText(msgspec.json.format(encode(document), indent=indent).decode())


def json_lines(documents: Iterable[object]) -> JsonText:
    """The documents as JSON, one a line, without a newline at the end."""
    return JsonText(b"\n".join(map(encode, documents)).decode())


def redacted(document: Any) -> Any:
    """A document of structs, lists and dicts without secrets in its texts; the document itself if it has none.

    Lists of texts are searched as the words of a command. Of a variable, a dict entry or a struct with `name` and
    `value`, the whole value is hidden if the name is that of a secret.
    """
    if isinstance(document, NewSecret):
        return str(document)
    if isinstance(document, str):
        return _short(document) if len(document) <= _SHORT else without_secrets(document)
    if document is None or isinstance(document, int | float):
        return document
    if isinstance(document, msgspec.Struct):
        return _struct(document)
    if isinstance(document, list | tuple | set | frozenset):
        return _list(document)
    if isinstance(document, dict):
        made = {name: _entry(name, value) for name, value in document.items()}
        return document if all(map(operator.is_, made.values(), document.values())) else made
    return document


#: Characters. Shorter texts repeat: names of nodes and jobs, states.
_SHORT: Final = 64
_short = functools.lru_cache(maxsize=16_384)(without_secrets)


def _entry(name: Any, value: Any) -> Any:
    if type(value) is str and type(name) is str and names_a_secret(name):
        return HIDDEN
    return redacted(value)


def _list(items: Any) -> Any:
    if items and isinstance(items, list | tuple) and all(type(item) is str for item in items):
        if not SUSPECT.search("\n".join(items)):
            return items
        made = words_without_secrets(items)
    else:
        made = tuple(map(redacted, items))
    if all(map(operator.is_, made, items)):
        return items
    return list(made)


def _struct(struct: msgspec.Struct) -> msgspec.Struct:
    changes = {}
    for field in _fields_with_text(type(struct)):
        value = getattr(struct, field)
        if (made := redacted(value)) is not value:
            changes[field] = made
    name, value = getattr(struct, "name", None), getattr(struct, "value", None)
    if type(name) is str and type(value) is str and (hidden := value_without_secrets(name, value)) != value:
        changes["value"] = hidden
    return msgspec.structs.replace(struct, **changes) if changes else struct


@functools.cache
def _fields_with_text(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a struct that may contain a text of a node or a user: no numbers, no words of a fixed list."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _may_contain_text(field.type))


def _may_contain_text(type_: Any) -> bool:
    if type_ in _NO_TEXT or get_origin(type_) is Literal:
        return False
    if get_origin(type_) is Annotated or isinstance(type_, types.UnionType) or get_origin(type_) is Union:
        return any(map(_may_contain_text, get_args(type_)))
    return True
