"""Every form in which a topology leaves the console, by the ending of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .dot import to_dot
from .json_document import to_json
from .snapshot import TopologySnapshot
from .svg import to_svg
from .text import to_text

#: Name → what writes it, of a whole fleet or of one node.
FORMATS: Final[Mapping[str, Callable[[TopologySnapshot, str | None], str]]] = {
    "text": to_text, "dot": to_dot, "json": to_json, "svg": to_svg,
}  # fmt: skip
#: The ending of a file in that form.
ENDINGS: Final[Mapping[str, str]] = {"text": "txt", "dot": "dot", "json": "json", "svg": "svg"}
