"""Fields of the JSON report match `report_fields.txt`, since other programs read them."""

import json
from pathlib import Path
from typing import Any

import msgspec

from gconsole.report import Report

RECORDED = Path(__file__).with_name("report_fields.txt")


def fields(schema: dict[str, Any]) -> list[str]:
    """`path type` of every field of a JSON schema, without type names."""
    definitions, lines = schema.get("$defs", {}), []

    def walk(node: dict[str, Any], path: str, parents: frozenset[str]) -> None:
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[1]
            if name in parents:
                lines.append(f"{path} recursive")
            else:
                walk(definitions[name], path, parents | {name})
        elif "anyOf" in node:
            for part in node["anyOf"]:
                walk(part, path, parents)
        elif "enum" in node or "const" in node:
            lines.append(f"{path} {json.dumps(node.get('enum', [node.get('const')]))}")
        elif node.get("type") == "object":
            lines.append(f"{path} object")
            for key, value in node.get("properties", {}).items():
                walk(value, f"{path}.{key}{'' if key in node.get('required', []) else '?'}", parents)
            if isinstance(node.get("additionalProperties"), dict):
                walk(node["additionalProperties"], f"{path}.*", parents)
        elif node.get("type") == "array":
            lines.append(f"{path} array")
            for item in [node["items"]] if isinstance(node.get("items"), dict) else node.get("prefixItems", []):
                walk(item, f"{path}[]", parents)
        else:
            lines.append(f"{path} {node.get('type')}")

    walk(schema, "report", frozenset())
    return lines


def test_the_report_keeps_its_recorded_fields_types_and_order():
    assert fields(msgspec.json.schema(Report)) == RECORDED.read_text().splitlines()
