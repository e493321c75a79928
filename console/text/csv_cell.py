"""Values as cells of CSV: unknown is empty, and no text is a formula."""

from __future__ import annotations

from typing import Any, Final

import msgspec

#: A spreadsheet takes text that begins so for a formula, and runs it; a quote before it makes it text again (OWASP).
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> str:
    """One cell, before it is quoted. Lists and structs are JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
        case list() | tuple() | dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
