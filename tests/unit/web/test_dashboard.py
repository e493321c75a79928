"""The Grafana dashboard uses only existing series and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from full_store import NOW, everything
from prometheus_client.parser import text_string_to_metric_families

from gconsole.core.control import ActiveRecording
from gconsole.web.exposition import PLAIN
from gconsole.web.resources.metrics import exposition, take_snapshot

DASHBOARD = json.loads((Path(__file__).parents[3] / "docs/grafana/gconsole.json").read_text())


def exported_series() -> dict[str, set[str]]:
    """Every exported series of a full store, and its labels."""
    text = b"".join(exposition(take_snapshot(everything(), [ActiveRecording("x", NOW, 1, 1)], NOW), PLAIN)).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """(name, matched labels) of every selector below a node of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    for part in ("expr", "lhs", "rhs", "vector_selector"):
        below = getattr(node, part, None)
        if below is not None:
            yield from selectors(below)
    args = getattr(node, "args", None)
    for below in args or ():
        yield from selectors(below)


@pytest.mark.parametrize("text", expressions())
def test_dashboard_query_is_valid_promql_over_exported_series_and_labels(text: str) -> None:
    known = exported_series()
    found = list(selectors(promql_parser.parse(text)))
    assert {name for name, _ in found} == set(re.findall(r"\b(?:gconsole|process)_\w+", text)), "all names are parsed"
    for name, labels in found:
        assert name in known, name
        assert labels <= known[name], (name, labels)


def test_dashboard_legends_use_only_exported_labels() -> None:
    known = exported_series()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            names = set(re.findall(r"\b(?:gconsole|process)_\w+", target["expr"]))
            labels = set().union(*(known[name] for name in names))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target


def test_dashboard_variables_use_only_exported_labels() -> None:
    known = exported_series()
    for variable in DASHBOARD["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable.get("definition", "")))
        if match:
            assert match[2] in known[match[1]]


def test_dashboard_uses_only_the_selected_data_source() -> None:
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {"${source}", "gconsole"}
    assert "http" not in text
    assert len(expressions()) > 25
