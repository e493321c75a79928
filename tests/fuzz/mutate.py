"""Random mutations of valid inputs, for use without atheris: cut, duplicate, swap, insert dictionary words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

#: The words of `dictionary.txt`, the dictionary of libFuzzer.
WORDS: Final = tuple(
    line.strip()[1:-1].encode().decode("unicode_escape").encode("latin-1")
    for line in (Path(__file__).parent / "dictionary.txt").read_text().splitlines()
    if line.strip()
)


def varied(seed: bytes, draw: random.Random) -> bytes:
    """One to four mutations."""
    data = bytearray(seed)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice((1, 2, 8, 64, 1024)))
        match draw.randrange(5):
            case 0:
                data[start:end] = bytes(draw.randrange(256) for _ in range(end - start))
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
