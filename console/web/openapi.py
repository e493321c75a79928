"""The OpenAPI document at `/openapi.json` and its page at `/docs`, derived from the operations and their types."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from .operation import (
    AnyOperation,
    NoParameters,
    Operation,
    OperationRequest,
    StreamOperation,
    UploadOperation,
    WebContext,
    operation,
    stream,
)
from .problems import MEANINGS, HttpProblem

#: Statuses that every operation may return, those with a path parameter, and those with a body.
_ALWAYS: Final = (400, 401, 403, 429, 500, 503)
_WITH_A_NAME: Final = (404,)
_WITH_A_BODY: Final = (408, 413, 415)
_REF: Final = "#/components/schemas/{name}"
_CSS: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f3f3f3;padding:.1em .3em;border-radius:3px}
pre{padding:.8em;overflow:auto}summary{cursor:pointer}section{border-top:1px solid #ddd;padding:.7rem 0}
b{display:inline-block;min-width:4.2rem;font-family:ui-monospace,monospace}table{border-collapse:collapse}
td{padding:.15rem .8rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}code,pre{background:#262626}
section{border-color:#333}}
"""
_CSP: Final = (
    "default-src 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode() + "'"
)  # fmt: skip

Fields = dict[str, Any]


class About(msgspec.Struct):
    """Version of this server, and its paths."""

    message: str
    version: str
    cluster: str
    paths: list[str]


def described(operations: Sequence[AnyOperation]) -> tuple[AnyOperation, ...]:
    """These operations with those that describe the API: `/`, `/openapi.json` and `/docs`."""

    @operation("GET", "/", scope="metrics")
    async def get_about(context: WebContext, request: OperationRequest[NoParameters]) -> About:
        """API version and available paths."""
        return About("gconsole HTTP API", __version__, context.config.cluster, sorted({item.path for item in listed}))

    @lru_cache(1)
    def openapi() -> Fields:
        return document(listed, "gconsole")

    @stream("/openapi.json", "application/json", allows_basic_auth=True, scope="metrics")
    async def get_openapi(context: WebContext, request: Request) -> Response:
        """OpenAPI 3.1 description of this API."""
        return Response(msgspec.json.encode(openapi()), media_type="application/json")

    @stream("/docs", "text/html", allows_basic_auth=True, scope="metrics")
    async def get_docs(context: WebContext, request: Request) -> Response:
        """OpenAPI description as an HTML page."""
        return Response(page(openapi()), media_type="text/html", headers={"content-security-policy": _CSP})

    listed: tuple[AnyOperation, ...] = (get_about, *operations, get_openapi, get_docs)
    return listed


# -- the document ------------------------------------------------------------------------------------------------------


def document(operations: Sequence[AnyOperation], title: str) -> Fields:
    """The OpenAPI 3.1 document of these operations."""
    types = [*{id(kind): kind for item in operations for kind in _types(item)}.values(), HttpProblem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: Fields = {}
    for item in operations:
        methods = paths.setdefault(item.path, {})
        methods[item.method.lower()] = _operation_fields(item, by_type, components)
    for item in operations:  # a query is described by its parameters
        if _has_query(item):
            components.pop(_name(by_type[id(item.parameters)]), None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title, "version": __version__,
            "description": "State of the nodes, GPUs, ranks and jobs of one cluster, and actions on them. Unknown "
                           "values are null, never 0; units are part of the field names.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _has_query(operation: AnyOperation) -> bool:
    return operation.method == "GET" or isinstance(operation, UploadOperation)


def _types(operation: AnyOperation) -> list[Any]:
    if isinstance(operation, Operation | UploadOperation):
        return [operation.parameters, operation.response]
    return [operation.parameters]


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _operation_fields(
    operation: AnyOperation, by_type: Mapping[int, Fields], components: Mapping[str, Fields]
) -> Fields:
    method, schema = operation.method, by_type[id(operation.parameters)]
    fields: Fields = {
        "operationId": _id(method, operation.path), "summary": operation.summary,
        "tags": [operation.path.split("/")[1] or "about"], "responses": _responses(operation, by_type),
        "security": [{"token": [operation.scope]}],
    }  # fmt: skip
    parameters = _parameters(operation, components[_name(schema)] if _has_query(operation) else {})
    if parameters:
        fields["parameters"] = parameters
    if isinstance(operation, UploadOperation):
        file = {"schema": {"type": "string", "format": "binary"}}
        fields["requestBody"] = {"content": dict.fromkeys(operation.media, file), "required": True}
    elif method == "POST":
        is_required = bool(components[_name(schema)].get("required"))  # no body is an empty one
        fields["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": is_required}
    return fields


def _id(method: str, path: str) -> str:
    return "_".join([method.lower(), *(re.findall(r"[a-z]+", path) or ["about"])])


def _parameters(operation: AnyOperation, query: Mapping[str, Any]) -> list[Fields]:
    parameters: list[Fields] = []
    for name in re.findall(r"\{(\w+)\}", operation.path):
        schema = {"type": "string", **({"pattern": operation.name_pattern} if operation.name_pattern else {})}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    required = query.get("required", ())
    for name, schema in query.get("properties", {}).items():
        description = {"description": schema["description"]} if "description" in schema else {}
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": schema, **description})
    if isinstance(operation, StreamOperation):
        for name, meaning in operation.headers:
            parameters.append({"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}})
    return parameters


def _responses(operation: AnyOperation, by_type: Mapping[int, Fields]) -> Fields:
    content: Fields
    if isinstance(operation, StreamOperation):
        status, content = 200, {media: {} for media in operation.media}
    else:
        status, content = operation.status, {"application/json": {"schema": by_type[id(operation.response)]}}
    responses: Fields = {str(status): {"description": operation.summary, "content": content}}
    statuses = {*_ALWAYS, *operation.problems}
    if "{" in operation.path:
        statuses |= {*_WITH_A_NAME}
    if operation.method != "GET":
        statuses |= {*_WITH_A_BODY}
    problem = {"application/json": {"schema": by_type[id(HttpProblem)]}}
    for status in sorted(statuses):
        responses[str(status)] = {"description": MEANINGS[status], "content": problem}
    return responses


# -- the page ----------------------------------------------------------------------------------------------------------


def page(api: Fields) -> str:
    """The OpenAPI document as an HTML page without scripts, images or links to other sites."""
    sections = [
        _operation_section(path, method, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema_section(name, schema) for name, schema in sorted(api["components"]["schemas"].items())]
    info = api["info"]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>"
        f"<style>{_CSS}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p><p>Send <code>Authorization: Bearer TOKEN</code> with every request.</p>"
        f"<h2>Operations</h2>{''.join(sections)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _operation_section(path: str, method: str, operation: Fields) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code><td>{escape(parameter['in'])}"
        f"<td>{escape(_type(parameter['schema']))}<td>{escape(parameter.get('description', ''))}"
        for parameter in operation.get("parameters", ())
    )
    body = "".join(
        f"<p>Body: {_link(media['schema'])}" for media in operation.get("requestBody", {}).get("content", {}).values()
    )
    responses = "".join(
        f"<tr><td><code>{status}</code><td>{escape(response['description'])}<td>"
        + ", ".join(_link(kind.get("schema", {})) or escape(media) for media, kind in response["content"].items())
        for status, response in operation["responses"].items()
    )
    return (
        f"<section><details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
        f"</summary><p>Scope of the token: <code>{escape(operation['security'][0]['token'][0])}</code>"
        f"<table>{rows}</table>{body}<table>{responses}</table></details></section>"
    )


def _schema_section(name: str, schema: Fields) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code><td>{_link(kind) or escape(_type(kind))}"
        f"<td>{escape(kind.get('description', ''))}"
        for field, kind in schema.get("properties", {}).items()
    )
    return (
        f'<section id="{escape(name)}"><details><summary><code>{escape(name)}</code> '
        f"{escape(schema.get('description', ''))}</summary><table>{rows}</table></details></section>"
    )


def _link(schema: Fields) -> str:
    """A link to the schema that `$ref` names; "" without one."""
    name = escape(_name(schema))
    return f'<a href="#{name}">{name}</a>' if name else ""


def _type(schema: Fields) -> str:
    """Type of a schema in a few words."""
    if "$ref" in schema:
        return _name(schema)
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {}) if schema.get('items') else 'values'}"
    return str(schema.get("type", "value"))
