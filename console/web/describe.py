"""`/`, `/openapi.json` and `/docs`: the API tells what it is."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from .context import WebContext
from .openapi import document
from .operation import AnyOperation, NoParameters, Operation, OperationRequest, StreamOperation

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


class About(msgspec.Struct):
    """What answers here."""

    message: str
    version: str
    cluster: str
    paths: list[str]


def described(operations: Sequence[AnyOperation]) -> tuple[AnyOperation, ...]:
    """These operations, and those that tell of them."""

    async def about(context: WebContext, request: OperationRequest[NoParameters]) -> About:
        return About("gconsole HTTP API", __version__, context.config.cluster, sorted({one.path for one in every}))

    @lru_cache(1)
    def openapi() -> dict[str, Any]:
        return document(every, "gconsole")

    async def as_json(context: WebContext, request: Request) -> Response:
        return Response(msgspec.json.encode(openapi()), media_type="application/json")

    async def as_page(context: WebContext, request: Request) -> Response:
        return Response(page(openapi()), media_type="text/html", headers={"content-security-policy": _CSP})

    every: tuple[AnyOperation, ...] = (
        Operation("GET", "/", "API version and available paths.", about, NoParameters, About),
        *operations,
        StreamOperation(
            "/openapi.json", "This description, as OpenAPI 3.1.", as_json, ("application/json",), is_described=True
        ),
        StreamOperation("/docs", "This description, as a page for people.", as_page, ("text/html",), is_described=True),
    )
    return every


def page(found: dict[str, Any]) -> str:
    """The document as a page that loads nothing from anywhere."""
    operations = [
        _operation(path, method, one) for path, methods in found["paths"].items() for method, one in methods.items()
    ]
    schemas = [_schema(name, one) for name, one in sorted(found["components"]["schemas"].items())]
    info = found["info"]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>"
        f"<style>{_CSS}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p><p>Every request carries <code>Authorization: Bearer TOKEN</code>.</p>"
        f"<h2>Operations</h2>{''.join(operations)}<h2>Records</h2>{''.join(schemas)}</html>"
    )


def _operation(path: str, method: str, one: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{escape(_type(p['schema']))}"
        f"<td>{escape(p.get('description', ''))}"
        for p in one.get("parameters", ())
    )
    body = "".join(
        f"<p>Body: {_link(kind['schema'])}" for kind in one.get("requestBody", {}).get("content", {}).values()
    )
    answers = "".join(
        f"<tr><td><code>{status}</code><td>{escape(answer['description'])}<td>"
        + ", ".join(_link(kind.get("schema", {})) or escape(media) for media, kind in answer["content"].items())
        for status, answer in one["responses"].items()
    )
    return (
        f"<section><details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(one['summary'])}"
        f"</summary><table>{rows}</table>{body}<table>{answers}</table></details></section>"
    )


def _schema(name: str, one: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code><td>{_link(kind) or escape(_type(kind))}"
        f"<td>{escape(kind.get('description', ''))}"
        for field, kind in one.get("properties", {}).items()
    )
    return (
        f'<section id="{escape(name)}"><details><summary><code>{escape(name)}</code> '
        f"{escape(one.get('description', ''))}</summary><table>{rows}</table></details></section>"
    )


def _link(schema: dict[str, Any]) -> str:
    """A link to the record that a schema names; "" where it names none."""
    name = escape(str(schema.get("$ref", "")).rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>' if name else ""


def _type(schema: dict[str, Any]) -> str:
    """The type in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {}) if schema.get('items') else 'values'}"
    return str(schema.get("type", "value"))
