"""As much of protobuf's wire format as a trace needs: fields one after the other, by their numbers."""

from __future__ import annotations

import struct


def varint(number: int, value: int) -> bytes:
    """An integer, a boolean or an enum."""
    return _varint(number << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(number: int, value: int) -> bytes:
    """Eight bytes, unsigned."""
    return _varint(number << 3 | 1) + struct.pack("<Q", value & 0xFFFF_FFFF_FFFF_FFFF)


def double(number: int, value: float) -> bytes:
    """A float of eight bytes."""
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def message(number: int, value: bytes) -> bytes:
    """A message within a message, or bytes."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """A string."""
    return message(number, value.encode(errors="replace"))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
