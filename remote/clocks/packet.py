"""The probe's packet: 64 bytes, the same there and back, each with a keyed tag.

magic 4 | version 1 | type 1 | edge 2 | number 4 | position 1 | stamps 1 | zero 2 | t2 8 | t3 8 | zero 24 | tag 8

`number` counts the triples of one edge, `position` (0 to 2) the packets of a triple. t2 and t3 are those of the
answering node, ns of its MONOTONIC_RAW, and zero in a request; t1 never travels, the sender keeps it.
"""

import struct

try:  # without hashlib, which loads OpenSSL: 4 MB for as long as the agent lives
    from _blake2 import blake2b
    from _operator import _compare_digest as same_digest
except ImportError:  # an interpreter that is not CPython's own build
    from hashlib import blake2b
    from hmac import compare_digest as same_digest

SIZE = 64
MAGIC = b"gcCk"
VERSION = 1
REQUEST, REPLY = 0, 1
#: Bits of `stamps`: this t2 is the kernel's.
KERNEL = 1
KEY_BYTES = 16

_HEAD = struct.Struct("!4sBBHIBBH")  # 16 bytes
_TIMES = struct.Struct("!qq24x")  # 40 bytes
_TAG_BYTES = 8


def sealer(key):
    """What makes tags with that key. BLAKE2b keyed, 8 bytes: forged with chance 2**-64 a packet."""
    return blake2b(key=key, digest_size=_TAG_BYTES)


def pack(seal, kind, edge, number, position, stamps=0, t2=0, t3=0):
    """A packet's 64 bytes."""
    body = _HEAD.pack(MAGIC, VERSION, kind, edge, number, position, stamps, 0) + _TIMES.pack(t2, t3)
    tag = seal.copy()
    tag.update(body)
    return body + tag.digest()


def head(data):
    """(type, edge, number, position, stamps) of what may be a packet; None for what is none."""
    if len(data) != SIZE:
        return None
    magic, version, kind, edge, number, position, stamps, _ = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or position > 2:
        return None
    return kind, edge, number, position, stamps


def is_genuine(seal, data):
    """Whether the tag is that of who has the key."""
    tag = seal.copy()
    tag.update(data[:-_TAG_BYTES])
    return same_digest(tag.digest(), data[-_TAG_BYTES:])


def times(data):
    """(t2, t3)."""
    return _TIMES.unpack_from(data, _HEAD.size)
