"""Training configurations as files: JSON, TOML and YAML, with comments and order preserved."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, MutableMapping
from pathlib import PurePath
from typing import Any, Final

Tree = MutableMapping[str, Any]


class BadConfigFile(ValueError):
    """The file cannot be parsed in the format of its name; the message has line and reason."""


def load(name: str, text: str) -> Tree:
    """The configuration in a file of that name. Raises BadConfigFile."""
    reader, _ = _form(name)
    tree = reader(text)
    if not isinstance(tree, MutableMapping):
        raise BadConfigFile(f"{name}: does not contain a table of settings")
    return tree


def dump(name: str, tree: Tree, like: str) -> str:
    """The formatted file, with the indentation of `like`, the original text."""
    _, writer = _form(name)
    return writer(tree, like)


def _form(name: str) -> tuple[Callable[[str], Any], Callable[[Tree, str], str]]:
    try:
        return _FORMS[PurePath(name).suffix.lower()]
    except KeyError:
        raise BadConfigFile(f"{name}: not a .json, .toml, .yaml or .yml file") from None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfigFile(f"line {error.lineno}: {error.msg}") from error


def _write_json(tree: Tree, like: str) -> str:
    indent = re.search(r"\{\n([ \t]+)", like)
    return json.dumps(tree, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _read_toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise BadConfigFile(str(error)) from error


def _write_toml(tree: Tree, like: str) -> str:
    import tomlkit

    return tomlkit.dumps(tree)


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096  # do not wrap long lines
    return yaml


def _read_yaml(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        return _yaml().load(text)
    except YAMLError as error:
        raise BadConfigFile(" ".join(str(error).split())) from error


def _write_yaml(tree: Tree, like: str) -> str:
    yaml = _yaml()
    if re.search(r"^( *)\S.*:\n\1 +- ", like, re.MULTILINE):
        yaml.indent(mapping=2, sequence=4, offset=2)
    written = io.StringIO()
    yaml.dump(tree, written)
    return written.getvalue()


_FORMS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Tree, str], str]]]] = {
    ".json": (_read_json, _write_json), ".toml": (_read_toml, _write_toml),
    ".yaml": (_read_yaml, _write_yaml), ".yml": (_read_yaml, _write_yaml),
}  # fmt: skip
