"""SECURITY.md lists every module that decodes data, with the fuzz target that covers it, or the reason without one."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # `tests.fuzz` does not depend on a conftest

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
#: Calls that turn bytes or text of somebody else into values.
CALLS = frozenset(
    {"json.load", "json.loads", "msgspec.json.decode", "msgspec.json.Decoder", "msgspec.msgpack.decode",
     "msgspec.msgpack.Decoder", "msgspec.convert", "struct.unpack", "struct.unpack_from", "struct.iter_unpack",
     "zlib.decompress", "zlib.decompressobj", "lzma.decompress", "gzip.open", "gzip.GzipFile", "base64.b64decode",
     "int.from_bytes", "pickle.loads", "pickletools.genops", "tomllib.load", "tomllib.loads"}
)  # fmt: skip
METHODS = (".unpack", ".unpack_from", ".iter_unpack", ".decompress")
ROW = re.compile(r"^\| (?P<input>[^|]+) \| (?P<modules>(?:`[\w/.]+\.py`[ ,]*)+) \| (?P<cover>[^|]+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, list[str], str]]:
    section = (ROOT / "SECURITY.md").read_text().partition("## Fuzzing\n")[2]
    return [
        (row["input"], re.findall(r"`([\w/.]+\.py)`", row["modules"]), row["cover"]) for row in ROW.finditer(section)
    ]


def decodes(path: Path) -> bool:
    """Whether a module decodes data, or has a public parser of the agent."""
    tree = ast.parse(path.read_text())
    parses = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("parse")]
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    is_call = bool(calls & CALLS) or any(call.endswith(METHODS) for call in calls)
    return is_call or (bool(parses) and path.is_relative_to(ROOT / "remote"))


def test_list_of_decoders_is_complete_and_names_each_module_once() -> None:
    listed = [module for _, modules, _ in rows() for module in modules]
    found = {str(path.relative_to(ROOT)) for package in ("console", "remote")
             for path in (ROOT / package).rglob("*.py") if decodes(path)}  # fmt: skip
    assert sorted(listed) == sorted(set(listed))
    assert sorted(found - set(listed)) == [], "add them to the table below Fuzzing in SECURITY.md"
    assert [module for module in listed if not (ROOT / module).is_file()] == []


def test_every_fuzz_target_is_listed_and_every_listed_target_exists() -> None:
    named = [re.findall(r"`([\w-]+)`", cover) for _, _, cover in rows()]
    assert {name for names in named for name in names} == set(TARGETS)
    assert all(names or len(cover) > 20 for names, (_, _, cover) in zip(named, rows(), strict=True)), (
        "a reason is missing"
    )
