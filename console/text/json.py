"""JSON for people: what `--json` prints."""

from __future__ import annotations

import msgspec


def pretty(document: object) -> str:
    """The document as indented JSON, without a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
