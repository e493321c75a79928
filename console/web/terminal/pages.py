"""Everything that a browser may load: pages and files of this machine, and headers that forbid it any other."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Final

_OURS, _THEIRS = files(__package__) / "page", files("textual_serve") / "static"
#: What a page may load beside itself: name → (where it lies, its type). No other file is reachable.
FILES: Final[Mapping[str, tuple[Traversable, str]]] = {
    "page.css": (_OURS / "page.css", "text/css"),
    "page.js": (_OURS / "page.js", "text/javascript"),
    "textual.js": (_THEIRS / "js" / "textual.js", "text/javascript"),
    "xterm.css": (_THEIRS / "css" / "xterm.css", "text/css"),
    "mono.ttf": (_THEIRS / "fonts" / "RobotoMono-VariableFont_wght.ttf", "font/ttf"),
}
_HEADERS: Final = {
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def headers(host: str) -> dict[str, str]:
    """What the browser is told with every answer. `host` is what it calls us, once the door has let it in.

    The terminal writes its style into the page; beside that, everything comes from where the page came from. Not every
    browser takes a websocket of the same place for 'self', so it is named.
    """
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src data:; "
        f"connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": policy, **_HEADERS}


def refusal_headers() -> dict[str, str]:
    """For whoever is not let in: nothing is to be loaded at all."""
    return {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", **_HEADERS}


def console_page(title: str) -> str:
    """The page with the terminal."""
    return _filled("console.html", title=title)


def busy_page(title: str) -> str:
    """For the second visitor."""
    return _filled(
        "words.html", title=title, head="Another browser is connected.",
        text="Only one browser can be connected at a time, because each runs its own console with its own SSH "
        "connections.\nClose the other window (or quit its console with q), then try again.",
        again="Try again",
    )  # fmt: skip


def ended_page(title: str, last_words: str) -> str:
    """When the console has ended; what it said at its end, where it said anything."""
    return _filled(
        "words.html", title=title, head="The console has ended.", text=last_words or "No processes are left running.",
        again="Restart",
    )  # fmt: skip


def _filled(name: str, **words: str) -> str:
    template = Template((_OURS / name).read_text(encoding="utf-8"))
    return template.substitute({key: escape(word) for key, word in words.items()})
