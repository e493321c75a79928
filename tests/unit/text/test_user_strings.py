"""All user-visible text is listed in one document that is kept up to date."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "user_strings.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("user_strings", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_strings"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_user_string_document_matches_the_source(tool: ModuleType):
    written = set(tool.DOCUMENT.read_text(encoding="utf-8").splitlines())
    made = set(tool.document().splitlines())
    changed = [f"- {line}" for line in sorted(written - made)] + [f"+ {line}" for line in sorted(made - written)]
    assert not changed, "read the changed texts, then run: python tools/user_strings.py --update\n" + "\n".join(changed)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ('raise FleetError(f"{node.name} is away", "try again")', {"{name} is away", "try again"}),
        ('"""A docstring of two words."""', set()),
        ('echo("stopped")', {"stopped"}),
        ('Span("stopped", "muted")', {"stopped"}),
        ('option("--x", help="Port.")', {"Port."}),
        ('x = "stopped"', set()),
        ('re.compile("two words|more words")', set()),
        ('db.execute("SELECT a FROM b")', set()),
        ('x: "dict[str, str] | None" = None', set()),
        ('if text == "two words": pass', set()),
        ("x = f\"{count} rank{'s' * (count != 1)} lost\"", {"{count} rank{s} lost"}),
        ('say("done" + (" after a crash" if crashed else ""))', {" after a crash"}),
    ],
)
def test_user_visible_strings_are_separated_from_internal_ones(tool: ModuleType, source: str, texts: set[str]):
    assert set(tool.texts_of(ast.parse(source))) == texts


def test_user_string_document_covers_every_kind_of_text(tool: ModuleType):
    document = tool.DOCUMENT.read_text(encoding="utf-8")
    for text in (
        "gconsole batch", "ssh.connect_timeout_s", "app.log  log", "rank_missing", "/metrics", "is not a duration",
        "== console/tui/dialogs ==", "== remote/jobs ==",
    ):  # fmt: skip
        assert text in document, text
