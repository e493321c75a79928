"""The tests that SECURITY.md names exist, and those it marks as `make full` only are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`( \(\*full\*\))?")


@cache
def functions(path: Path) -> dict[str, str]:
    """Test functions of a file, with the source text of their decorators."""
    decorators = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators[node.name] = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    return decorators


def test_every_test_named_in_security_md_exists() -> None:
    named = NAMED.findall((ROOT / "SECURITY.md").read_text())
    assert len(named) > 40
    for path, name, _ in named:
        assert name in functions(ROOT / path), f"{path}::{name}"


def test_full_only_tests_are_marked_as_such_in_security_md() -> None:
    for path, name, is_full in NAMED.findall((ROOT / "SECURITY.md").read_text()):
        decorators = functions(ROOT / path)[name]
        is_marked = re.search(r"^(LONG|pytest\.mark\.full)\b", decorators) is not None
        assert is_marked == bool(is_full), f"{path}::{name}"
