"""JSON objects that commands print name their schema and its version."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli.main import gconsole

SESSION = Path(__file__).parents[1] / "previous_release" / "session"


@pytest.mark.parametrize(
    ("args", "schema"),
    [
        (["config", "show", "a,b", "--json"], "gconsole.config/1"),
        (["sessions", "show", str(SESSION), "--json"], "gconsole.session_summary/1"),
        (["diagnose", str(SESSION), "-o", "-", "--quiet"], "gconsole.report/1"),
        (["sessions", "verify", str(SESSION), "--json"], "gconsole.verify/1"),
        (["collectives", "--from", str(SESSION), "--json"], "gconsole.collectives/1"),
        (["diff", str(SESSION), str(SESSION), "--json"], "gconsole.diff/1"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_json_object_has_a_versioned_schema_field(args: list[str], schema: str) -> None:
    assert json.loads(CliRunner().invoke(gconsole, args).stdout)["schema"] == schema


def test_printed_json_schema_has_an_id() -> None:
    document = json.loads(CliRunner().invoke(gconsole, ["schema", "--kind", "mark"]).stdout)
    assert document["$id"] == "urn:gconsole:schema:1"
