"""The text that Prometheus reads: OpenMetrics 1.0, and the older text format for who asks for no other.

Written here and not by prometheus_client, which takes several times as long for a large fleet (`make bench`); its
parser reads the result in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .families import Family

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
#: A label's value from a node is cut there.
_MOST_LETTERS: Final = 200
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

#: One sample as it is written, behind its name: `{node="a"} 1` and the end of the line.
Sample = str


def wanted_format(accept: str) -> str:
    """The content type of the answer to such an Accept."""
    return OPENMETRICS if "application/openmetrics-text" in accept.lower() else PLAIN


def labels(**named: object) -> str:
    """`node="a",gpu="0"`, whatever stands in the values."""
    return ",".join(f'{name}="{value_text(str(value))}"' for name, value in named.items())


def value_text(text: str) -> str:
    """A label's value between its quotes."""
    if len(text) <= _MOST_LETTERS and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return "".join(c if c.isprintable() else "�" for c in text[:_MOST_LETTERS]).translate(_ESCAPES)


def sample(value: int | float | str, text: str = "") -> Sample:
    """A value with these labels."""
    return f"{{{text}}} {value}\n" if text else f" {value}\n"


def heading(family: Family, media: str) -> str:
    """What stands above the samples of a family."""
    help_ = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    if media is PLAIN:
        kind = "counter" if family.kind == "counter" else "gauge"
        return f"# HELP {family.sample} {help_}\n# TYPE {family.sample} {kind}\n"
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# HELP {family.name} {help_}\n# TYPE {family.name} {family.kind}\n{unit}"


def block(family: Family, samples: Sequence[Sample], media: str) -> bytes:
    """A family with its samples; nothing where it has none."""
    if not samples:
        return b""
    name = family.sample
    return "".join((heading(family, media), name, name.join(samples))).encode(errors="replace")


def end(media: str) -> bytes:
    """What stands at the end of everything."""
    return b"# EOF\n" if media is OPENMETRICS else b""
