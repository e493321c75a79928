"""Random mutations of valid inputs: bytes cut, duplicated, swapped, words inserted; JSON values of another type."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

#: The words of `dictionary.txt`, the dictionary of libFuzzer.
WORDS: Final = tuple(
    line.strip()[1:-1].encode().decode("unicode_escape").encode("latin-1")
    for line in (Path(__file__).parent / "dictionary.txt").read_text().splitlines()
    if line.strip()
)


#: Values that take the place of others in JSON; those of one type that another parser accepts, and those at limits.
VALUES: Final = (
    None, True, False, 0, 1, -1, 2.5, 1e400, 1e308, -0.0, float("nan"), 2**53, 2**63, 2**64, 10**30, -(2**63),
    "", "2", "-1", "1e3", " 7", "\u00b2", "\u0663", "inf", "\ud800", "x" * 300, "a\nb", "\u001b]0;x\u0007",
    [], {}, [[]], [{}], [1, "2"], [None, 1, "a"], [[1], "1"], {"": 1}, {"1": [1, "2"]}, {"ranks": [1, "2"]},
)  # fmt: skip


def varied(seed: bytes, draw: random.Random) -> bytes:
    """One to four mutations of bytes, or of JSON where the seed is JSON."""
    mixed = mixed_types(seed, draw) if draw.random() < 0.4 else None
    return _varied_bytes(seed, draw) if mixed is None else mixed


def mixed_types(seed: bytes, draw: random.Random) -> bytes | None:
    """The JSON document, or one of its lines of JSON, with some values of other types; None if it is not JSON."""
    lines, index = [seed], 0
    document = _document(seed)
    if document is None:
        lines = seed.split(b"\n")
        index = draw.randrange(len(lines))
        document = _document(lines[index])
    if document is None:
        return None
    for _ in range(draw.choice((1, 1, 2, 4))):
        document = _replaced(document, draw)
    lines[index] = json.dumps(document).encode()
    return b"\n".join(lines)


@lru_cache(4096)
def _document(text: bytes) -> Any:
    """The JSON document, of which mutations are copies; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _replaced(value: Any, draw: random.Random) -> Any:
    """The value with one part replaced, removed, repeated or added; deeper parts as likely as outer ones."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        match draw.randrange(8):
            case 0:
                return {name: part for name, part in value.items() if name != key}
            case 1:
                return {**value, str(draw.choice(VALUES)): draw.choice((value[key], draw.choice(VALUES)))}
            case _:
                return {**value, key: _replaced(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        place = draw.randrange(len(value))
        match draw.randrange(6):
            case 0:
                return [*value, draw.choice(VALUES)]
            case 1:
                return [*value[:place], *value[place + 1 :]]
            case 2:
                return [*value, _replaced(value[place], draw)]
            case _:
                return [*value[:place], _replaced(value[place], draw), *value[place + 1 :]]
    return draw.choice(VALUES)


def _varied_bytes(seed: bytes, draw: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice((1, 2, 8, 64, 1024)))
        match draw.randrange(5):
            case 0:
                data[start:end] = draw.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = draw.choice(WORDS)
            case 3:
                data[start:start] = data[start:end] * draw.randint(1, 8)
            case _:
                if start < len(data):
                    data[start] ^= 1 << draw.randrange(8)
    return bytes(data)
