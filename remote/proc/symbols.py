"""Address of a symbol in a running process, from the dynamic symbol table in its memory.

No file is opened: the library on disk may have been replaced, deleted, or lie in a container's file system.
Only 64-bit little endian ELF. Layouts: elf.h, and the GNU hash section as ld.so reads it.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

PT_LOAD, PT_DYNAMIC, ET_EXEC = 1, 2, 2
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
#: Upper bound on a hash chain, so that an inconsistent read does not loop.
LONGEST_CHAIN = 4096


class BadImage(Exception):
    """Not a supported ELF image."""


def find_symbol(read: "Callable[[int, int], bytes]", base: int, name: bytes) -> "int | None":
    """The offset of `name` (bytes) from `base`, the lowest address of the image; None where it is not defined there.

    `read(address, size)` gives the bytes of the process. Raises BadImage, or what `read` raises.
    """
    header = _exactly(read, base, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise BadImage("not a 64-bit little endian ELF image")
    kind = struct.unpack_from("<H", header, 16)[0]
    (table,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    if size != 56 or count > 128:
        raise BadImage("unsupported program headers")
    bias, dynamic = _segments(_exactly(read, base + table, size * count), base, kind)
    tags = _dynamic(read, dynamic, bias)
    if DT_SYMTAB not in tags or DT_STRTAB not in tags:
        return None
    if DT_GNU_HASH in tags:
        value = _by_gnu_hash(read, tags, name)
    elif DT_HASH in tags:
        value = _by_sysv_hash(read, tags, name)
    else:
        return None
    return None if value is None else value + bias - base


def _exactly(read: "Callable[[int, int], bytes]", address: int, size: int) -> bytes:
    data = read(address, size)
    if len(data) != size:
        raise BadImage("memory ended early")
    return data


def _segments(headers: bytes, base: int, kind: int) -> "tuple[int, int]":
    """(load bias, address of the dynamic section)"""
    first = dynamic = None
    for offset in range(0, len(headers), 56):
        (segment,) = struct.unpack_from("<I", headers, offset)
        file_offset, virtual = struct.unpack_from("<QQ", headers, offset + 8)
        if segment == PT_LOAD and first is None:
            first = virtual - file_offset
        elif segment == PT_DYNAMIC:
            dynamic = virtual
    if first is None or dynamic is None:
        raise BadImage("statically linked")
    bias = 0 if kind == ET_EXEC else base - (first & ~0xFFF)
    return bias, dynamic + bias


def _dynamic(read: "Callable[[int, int], bytes]", address: int, bias: int) -> "dict[int, int]":
    tags: dict[int, int] = {}
    for _ in range(16):  # 16 x 64 entries; real ones have about 30
        data = read(address, 1024)
        for offset in range(0, len(data) - 15, 16):
            tag, value = struct.unpack_from("<qQ", data, offset)
            if tag == 0:
                return tags
            if tag in (DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH):
                # glibc relocates these in place, musl does not
                tags[tag] = value if value >= bias else value + bias
        if len(data) < 1024:
            break
        address += 1024
    return tags


def _by_gnu_hash(read: "Callable[[int, int], bytes]", tags: "dict[int, int]", name: bytes) -> "int | None":
    address = tags[DT_GNU_HASH]
    buckets, first, bloom, _ = struct.unpack("<4I", _exactly(read, address, 16))
    if not buckets:
        return None
    wanted = 5381
    for byte in bytearray(name):
        wanted = (wanted * 33 + byte) & 0xFFFFFFFF
    table = address + 16 + 8 * bloom
    (start,) = struct.unpack("<I", _exactly(read, table + 4 * (wanted % buckets), 4))
    if start < first:
        return None
    for index in range(start, start + LONGEST_CHAIN):
        (value_hash,) = struct.unpack("<I", _exactly(read, table + 4 * (buckets + index - first), 4))
        if value_hash | 1 == wanted | 1:
            value = _value_if(read, tags, index, name)
            if value is not None:
                return value
        if value_hash & 1:
            return None
    raise BadImage("endless hash chain")


def _by_sysv_hash(read: "Callable[[int, int], bytes]", tags: "dict[int, int]", name: bytes) -> "int | None":
    address = tags[DT_HASH]
    buckets, symbols = struct.unpack("<2I", _exactly(read, address, 8))
    if not buckets:
        return None
    wanted = 0
    for byte in bytearray(name):
        wanted = (wanted << 4) + byte
        wanted = (wanted ^ (wanted & 0xF0000000) >> 24) & 0x0FFFFFFF
    (index,) = struct.unpack("<I", _exactly(read, address + 8 + 4 * (wanted % buckets), 4))
    for _ in range(min(symbols, LONGEST_CHAIN)):
        if not index:
            return None
        value = _value_if(read, tags, index, name)
        if value is not None:
            return value
        (index,) = struct.unpack("<I", _exactly(read, address + 8 + 4 * (buckets + index), 4))
    return None


def _value_if(read: "Callable[[int, int], bytes]", tags: "dict[int, int]", index: int, name: bytes) -> "int | None":
    """The value of symbol number `index` where it is a definition called `name`."""
    value: int
    text, _, _, section, value = struct.unpack("<IBBHQ", _exactly(read, tags[DT_SYMTAB] + 24 * index, 16))
    if not section or read(tags[DT_STRTAB] + text, len(name) + 1) != name + b"\0":
        return None
    return value
