"""The OpenAPI document is valid and lists every endpoint."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gconsole.web.openapi import described, document, page
from gconsole.web.resources import OPERATIONS

PATHS = [
    "/", "/status", "/nodes", "/gpus", "/ranks", "/jobs", "/clients", "/findings", "/crashes", "/clocks", "/metrics",
    "/metrics/latest", "/profiling/sessions", "/profiling/start", "/profiling/stop", "/jobs/{id}", "/jobs/{id}/logs",
    "/jobs/{id}/stop", "/jobs/plan", "/captures", "/diagnose", "/nodes/health", "/nodes/{name}", "/events",
    "/query", "/openapi.json", "/docs", "/folders", "/folders/{id}",
]  # fmt: skip


def the_document() -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(document(described(OPERATIONS), "gconsole")))


def test_openapi_document_has_the_expected_paths_and_methods() -> None:
    found = the_document()["paths"]
    assert set(found) == set(PATHS)
    assert set(found["/jobs"]) == {"get", "post"} and set(found["/nodes/{name}"]) == {"get", "delete"}
    assert set(found["/nodes"]) == {"get", "post"}
    sent = found["/folders"]["post"]
    assert set(sent["requestBody"]["content"]) == {"application/gzip", "application/x-tar"}
    assert [parameter["name"] for parameter in sent["parameters"]] == ["name"]


def test_schema_references_resolve_and_every_schema_is_referenced() -> None:
    found = the_document()
    named = set(re.findall(r"#/components/schemas/([^\"]+)", msgspec.json.encode(found).decode()))
    assert named == set(found["components"]["schemas"])


def test_operation_ids_are_unique() -> None:
    names = [method["operationId"] for methods in the_document()["paths"].values() for method in methods.values()]
    assert len(names) == len(set(names)) and "get_about" in names


def test_schemas_of_api_records_have_descriptions() -> None:
    for name, schema in the_document()["components"]["schemas"].items():
        if schema.get("type") == "object" and not name.endswith("Line") and name not in ("MissingRank", "NodeExam"):
            assert schema.get("description"), name


def test_markup_in_the_document_is_escaped_in_the_docs_page() -> None:
    found = the_document()
    found["paths"]["/nodes"]["get"]["summary"] = "<script>alert(1)</script>"
    assert "<script" not in page(found)
