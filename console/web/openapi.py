"""The OpenAPI document: derived from the operations and the types that they really use, never written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from .. import __version__
from .operation import AnyOperation, Operation, StreamOperation, method_of
from .problems import MEANINGS, HttpProblem

#: What any operation may answer, whatever it is.
_ALWAYS: Final = (400, 401, 403, 429, 500, 503)
_WITH_A_NAME: Final = (404,)
_WITH_A_BODY: Final = (408, 413, 415)
_REF: Final = "#/components/schemas/{name}"

Fields = dict[str, Any]


def document(operations: Sequence[AnyOperation], title: str) -> Fields:
    """The document, as JSON will have it."""
    types = [*{id(kind): kind for operation in operations for kind in _types(operation)}.values(), HttpProblem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: Fields = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[method_of(operation).lower()] = _described(operation, by_type, components)
    for operation in operations:  # a query is told by its parameters
        if method_of(operation) == "GET":
            components.pop(_name(by_type[id(operation.asks)]), None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title, "version": __version__,
            "description": "What gconsole knows of a cluster, and what it can do. A figure that is unknown is null, "
                           "never 0; units are part of the names.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _types(one: AnyOperation) -> list[Any]:
    return [one.asks, one.answer] if isinstance(one, Operation) else [one.asks]


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _described(one: AnyOperation, by_type: Mapping[int, Fields], components: Mapping[str, Fields]) -> Fields:
    method = method_of(one)
    found: Fields = {
        "operationId": _id(method, one.path), "summary": one.words, "tags": [one.path.split("/")[1] or "about"],
        "responses": _responses(one, by_type),
    }  # fmt: skip
    parameters = _parameters(one, components[_name(by_type[id(one.asks)])] if method == "GET" else {})
    if parameters:
        found["parameters"] = parameters
    if isinstance(one, Operation) and method == "POST":
        schema = by_type[id(one.asks)]
        is_asked = bool(components[_name(schema)].get("required"))  # no body is an empty one
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": is_asked}
    return found


def _id(method: str, path: str) -> str:
    return "_".join([method.lower(), *(re.findall(r"[a-z]+", path) or ["about"])])


def _parameters(one: AnyOperation, asks: Mapping[str, Any]) -> list[Fields]:
    found: list[Fields] = []
    for name in re.findall(r"\{(\w+)\}", one.path):
        pattern = one.name if isinstance(one, Operation) else ""
        schema = {"type": "string", **({"pattern": pattern} if pattern else {})}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    required = asks.get("required", ())
    for name, schema in asks.get("properties", {}).items():
        words = {"description": schema["description"]} if "description" in schema else {}
        found.append({"name": name, "in": "query", "required": name in required, "schema": schema, **words})
    if isinstance(one, StreamOperation):
        for name, meaning in one.headers:
            found.append({"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}})
    return found


def _responses(one: AnyOperation, by_type: Mapping[int, Fields]) -> Fields:
    content: Fields = (
        {media: {} for media in one.media}
        if isinstance(one, StreamOperation)
        else {"application/json": {"schema": by_type[id(one.answer)]}}
    )
    status = one.status if isinstance(one, Operation) else 200
    found: Fields = {str(status): {"description": one.words, "content": content}}
    statuses = {*_ALWAYS, *one.problems}
    if "{" in one.path:
        statuses |= {*_WITH_A_NAME}
    if isinstance(one, Operation) and one.method != "GET":
        statuses |= {*_WITH_A_BODY}
    problem = {"application/json": {"schema": by_type[id(HttpProblem)]}}
    for status in sorted(statuses):
        found[str(status)] = {"description": MEANINGS[status], "content": problem}
    return found
