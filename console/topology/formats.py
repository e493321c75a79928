"""Output formats of the topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .dot import to_dot
from .json_document import to_json
from .snapshot import TopologySnapshot
from .svg import to_svg
from .text import to_text

#: Format → writer, for all nodes or one node.
FORMATS: Final[Mapping[str, Callable[[TopologySnapshot, str | None], str]]] = {
    "text": to_text, "dot": to_dot, "json": to_json, "svg": to_svg,
}  # fmt: skip
#: Format → file extension.
ENDINGS: Final[Mapping[str, str]] = {"text": "txt", "dot": "dot", "json": "json", "svg": "svg"}
