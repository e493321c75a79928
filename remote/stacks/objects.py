"""Attributes of Python objects, read from the memory of a running process, which neither stops nor notices it.

py-spy gives the address of an object and prints only numbers, texts and containers. Every object on the way to an
attribute is checked by its type, and every pointer on the way is read again behind the value: whatever has changed
meanwhile, or does not look as expected, is unknown. Structures: Include/cpython/object.h, dictobject.h,
longintrepr.h and Objects/dict-common.h (later pycore_dict.h) of CPython 3.6 to 3.13, 64 bits, little endian.
"""

import os
import struct
import sys

from ..proc import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.procfs import ProcFs

#: The CPython versions whose structures are known.
OLDEST, NEWEST = (3, 6), (3, 13)
#: Bounds of one value: reads of memory, entries of a dict, bases of a class, characters of a text.
MAX_READS, MAX_ENTRIES, MAX_BASES, MAX_TEXT = 4096, 1024, 64, 80
#: Attempts for a value that changes while it is read.
ATTEMPTS = 5
#: What an array is shown as: its numbers may be on a device, and one number is not what it holds.
TENSOR = "tensor"
#: Types of arrays whose names do not end with Tensor: torch, JAX, NumPy.
_ARRAYS = frozenset(("Parameter", "Buffer", "ArrayImpl", "ndarray"))
#: Types that are part of every object and are not its state.
_CALLABLE = frozenset(("function", "method", "builtin_function_or_method", "partial", "property", "module"))
#: Numbers of NumPy: type → format of the value behind the head of the object.
_NUMPY = {
    "numpy.float64": "<d", "numpy.float32": "<f", "numpy.int64": "<q", "numpy.int32": "<i", "numpy.longlong": "<q",
    "numpy.uint64": "<Q", "numpy.uint32": "<I",
}  # fmt: skip

# PyTypeObject: offsets of its members, and flags
_NAME, _BASICSIZE, _FLAGS, _DICT, _DICTOFFSET, _MRO, _TYPE_SIZE = 24, 32, 168, 264, 288, 344, 352
_INLINE_VALUES, _MANAGED_DICT, _HEAP = 1 << 2, 1 << 4, 1 << 9
_IS_INT, _IS_TUPLE, _IS_STR, _IS_DICT, _IS_TYPE = 1 << 24, 1 << 26, 1 << 28, 1 << 29, 1 << 31
#: Largest reference count; immortal objects have 2^32 - 1. A freed object has an address there, or 0.
_MAX_REFS = 1 << 32
#: PyMemberDescrObject.d_member; PyMemberDef.offset.
_MEMBER, _MEMBER_OFFSET = 40, 16
_SPLIT, _GENERAL = 2, 0


class Unreadable(Exception):
    """An object is not what was expected, or its memory cannot be read."""


class _Missing(Unreadable):
    """An object, class or dict has no such attribute."""


def is_array(kind: str) -> bool:
    """Whether a type of this name is a tensor or another array."""
    name = kind.rpartition(".")[2]
    return name.endswith("Tensor") or name in _ARRAYS


class ObjectMemory(object):
    """The objects of one process. A context manager; raises Unreadable if its memory or its Python is not readable."""

    def __init__(self, procfs: "ProcFs", pid: int) -> None:
        version = programs.version_of(procfs, pid)
        if version is None or version.free_threaded or not OLDEST <= version.number <= NEWEST:
            raise Unreadable("attributes are not read in %s" % (version or "a Python of unknown version"))
        if struct.calcsize("P") != 8 or sys.byteorder != "little":
            raise Unreadable("attributes are read on 64-bit little-endian nodes only")
        self._version = version.number
        self._types: "dict[int, _Type]" = {}
        self._left = 0
        self._way: "list[tuple[int, int]]" = []  # (address, pointer that was there) of the way to a value
        self._procfs = procfs
        try:
            self._fd = procfs.open(pid, "mem")
        except OSError as error:
            raise Unreadable("memory of the process: %s" % (error.strerror or "unreadable"))

    def __enter__(self) -> "ObjectMemory":
        return self

    def __exit__(self, *_: "Any") -> None:
        self._procfs.release(self._fd)

    def value(self, address: int, attributes: "list[str]") -> "str | None":
        """What `attributes` lead to from the object at `address`, or it itself, as py-spy prints it; None if unknown.

        A tensor is `tensor`; other objects are `<Type at 0x…>`. A dict's item of that name counts as an attribute.
        """
        self._left = MAX_READS
        for _ in range(ATTEMPTS):
            self._way = []
            try:
                target = address
                for name in attributes:
                    target = self._attribute(target, name)
                text = self._text(target)
                if all(self._number(place) == pointer for place, pointer in self._way) and self._text(target) == text:
                    return text
            except Unreadable:
                pass
        return None

    def contents(self, cell: int) -> "tuple[str, int] | None":
        """(type, address) of what a cell holds: a variable that a nested function uses, too; None if unknown."""
        self._left = MAX_READS
        try:
            if self._type_of(cell).name != "cell":
                return None
            address = self._pointer(cell + 16)
            return self._type_of(address).name, address
        except Unreadable:
            return None

    def is_a(self, address: int, name: str) -> bool:
        """Whether the class of an object, or a base of it, has this name."""
        self._left = MAX_READS
        try:
            return any(base.name.rpartition(".")[2] == name for base in self._bases(self._type_of(address)))
        except Unreadable:
            return False

    # -- objects -----------------------------------------------------------------------------------------------------

    def _attribute(self, address: int, name: str) -> int:
        """The address of the value of one attribute. Raises Unreadable."""
        kind = self._type_of(address)
        if kind.flags & _IS_DICT:
            try:
                return self._item(address, name)
            except _Missing:
                pass  # a subclass may have attributes, too
        if kind.flags & _IS_TYPE:
            return self._class_attribute([self._type(base) for base in self._mro(self._type(address))], name)[0]
        try:
            return self._own_attribute(address, kind, name)
        except _Missing:
            value, descriptor = self._class_attribute(self._bases(kind), name)
        if descriptor.name == "member_descriptor":  # __slots__
            offset = self._number(self._link(value + _MEMBER) + _MEMBER_OFFSET)
            if not 16 <= offset <= 1 << 16:
                raise Unreadable("slot")
            return self._link(address + offset)
        return value

    def _own_attribute(self, address: int, kind: "_Type", name: str) -> int:
        """The value in the dict, or among the inline values, of an object. Raises Unreadable, _Missing."""
        if self._version >= (3, 11) and kind.flags & _MANAGED_DICT:
            return self._managed_attribute(address, kind, name)
        if not 16 <= kind.dictoffset <= 1 << 16:
            raise _Missing(name)
        return self._item(self._link(address + kind.dictoffset), name)

    def _managed_attribute(self, address: int, kind: "_Type", name: str) -> int:
        word = self._number(address - 24)  # MANAGED_DICT_OFFSET
        self._way.append((address - 24, word))
        if self._version >= (3, 13):
            if word:
                return self._item(word, name)
            values = address + kind.basicsize
            if not kind.flags & _INLINE_VALUES or not bytearray(self._read(values, 4))[3]:
                raise _Missing(name)
            values += 8
        elif self._version == (3, 12):
            if not word & 1:
                return self._item(word, name)
            values = word + 1
        else:
            values = self._number(address - 32)
            self._way.append((address - 32, values))
            if not values:
                return self._item(word, name)
        cached_keys = 872 if self._version == (3, 11) else 880  # PyHeapTypeObject.ht_cached_keys
        if not kind.flags & _HEAP:
            raise Unreadable("keys")
        return self._entry(self._pointer(kind.address + cached_keys), values, name)

    def _class_attribute(self, bases: "list[_Type]", name: str) -> "tuple[int, _Type]":
        """(value, its type) in the first class that has it; only a plain value or a slot. Raises Unreadable."""
        for base in bases:
            if not base.flags & _HEAP:
                continue
            try:
                value = self._item(self._pointer(base.address + _DICT), name)
            except _Missing:
                continue
            kind = self._type_of(value)
            if kind.name == "member_descriptor" or self._is_plain(kind):
                return value, kind
            break  # a property or a method: its value is computed
        raise Unreadable("no attribute %s" % name)

    def _item(self, address: int, name: str) -> int:
        """The value of a dict (0: there is none) by its key. Raises Unreadable, _Missing."""
        if not address:
            raise _Missing(name)
        if not self._type_of(address).flags & _IS_DICT:
            raise Unreadable("dict")
        keys, values = struct.unpack("<QQ", self._read(address + 32, 16))
        self._way += [(address + 32, keys), (address + 40, values)]
        return self._entry(keys, values + 8 if values and self._version >= (3, 13) else values, name)

    def _entry(self, keys: int, values: int, name: str) -> int:
        """The value of a key; `values` are those of a split table, else 0. Raises Unreadable, _Missing."""
        for index, key, place in self._entries(keys, bool(values)):
            if self._is_text(key, name):
                return self._link(values + 8 * index if values else place)
        raise _Missing(name)

    def _link(self, place: int) -> int:
        """The pointer in a place of the way to a value. Raises Unreadable, _Missing if there is none."""
        pointer = self._number(place)
        if not pointer:
            raise _Missing("no value")
        self._way.append((place, pointer))
        return pointer

    def _entries(self, keys: int, split: bool) -> "Iterator[tuple[int, int, int]]":
        """(index, key, address of the value) of a PyDictKeysObject; without deleted ones. Raises Unreadable."""
        head = self._read(keys, 40)
        if self._version >= (3, 11):
            bits, kind, count = bytearray(head)[9], bytearray(head)[10], struct.unpack_from("<q", head, 24)[0]
            if bits > 20 or kind > _SPLIT or split != (kind == _SPLIT):
                raise Unreadable("keys")
            first, size = keys + 32 + (1 << bits), 24 if kind == _GENERAL else 16
        else:
            slots, count = struct.unpack_from("<q", head, 8)[0], struct.unpack_from("<q", head, 32)[0]
            if not 0 < slots <= 1 << 20 or slots & (slots - 1):
                raise Unreadable("keys")
            first = keys + 40 + slots * (1 if slots <= 0xFF else 2 if slots <= 0xFFFF else 4)
            size = 24
        if not 0 <= count <= MAX_ENTRIES:
            raise Unreadable("keys")
        data = self._read(first, size * count) if count else b""
        for index in range(count):
            end = size * (index + 1)
            key = struct.unpack_from("<Q", data, end - 16)[0]
            if key:
                yield index, key, first + end - 8

    # -- values ------------------------------------------------------------------------------------------------------

    def _text(self, address: int) -> str:
        """An object as py-spy prints it. Raises Unreadable."""
        kind = self._type_of(address)
        if kind.name in _CALLABLE:
            raise Unreadable("a %s" % kind.name)
        if not kind.flags & _HEAP:
            if kind.name in ("int", "bool"):
                number = self._integer(address)
                return str(number) if kind.name == "int" else str(bool(number))
            if kind.name == "float" and kind.basicsize == 24:
                return repr(struct.unpack("<d", self._read(address + 16, 8))[0])
            if kind.name in _NUMPY:
                form = _NUMPY[kind.name]
                return repr(struct.unpack(form, self._read(address + 16, struct.calcsize(form)))[0])
            if kind.name == "NoneType":
                return "None"
            if kind.name == "str":
                return '"%s"' % self._ascii(address)
        if any(is_array(base.name) for base in self._bases(kind)):
            return TENSOR
        return "<%s at 0x%x>" % (kind.name, address)

    @staticmethod
    def _is_plain(kind: "_Type") -> bool:
        """Whether a value in a class is one of its instances, too: not a descriptor."""
        return not kind.flags & _HEAP and kind.name in ("int", "bool", "float", "str", "NoneType", "dict")

    def _integer(self, address: int) -> int:
        """The value of an int of up to 90 bits. Raises Unreadable."""
        size = struct.unpack("<q", self._read(address + 16, 8))[0]
        if self._version >= (3, 12):
            count, sign = size >> 3, (1, 0, -1, 2)[size & 3]
        else:
            count, sign = abs(size), (size > 0) - (size < 0)
        if sign == 0:
            return 0
        if sign == 2 or not 1 <= count <= 3:
            raise Unreadable("int")
        digits = struct.unpack("<%dI" % count, self._read(address + 24, 4 * count))
        if any(digit >> 30 for digit in digits) or (count > 1 and not digits[-1]):
            raise Unreadable("int")
        return int(sign * sum(digit << (30 * place) for place, digit in enumerate(digits)))

    def _ascii(self, address: int) -> str:
        """The characters of a short ASCII text. Raises Unreadable."""
        length = self._number(address + 16)
        if length > MAX_TEXT:
            raise Unreadable("str")
        data = self._read(address + self._characters, length + 1)
        if any(not 32 <= byte < 127 for byte in bytearray(data[:length])) or data[length:] != b"\0":
            raise Unreadable("str")
        return data[:length].decode("ascii")

    @property
    def _characters(self) -> int:
        """sizeof(PyASCIIObject), which its characters follow."""
        return 40 if self._version >= (3, 12) else 48

    def _is_text(self, address: int, text: str) -> bool:
        """Whether a key is this text; its own type is not read: the length and every character must be equal."""
        length = len(text)
        data = self._read(address, self._characters + length + 1)
        return struct.unpack_from("<Q", data, 16)[0] == length and data[self._characters :] == text.encode() + b"\0"

    # -- types -------------------------------------------------------------------------------------------------------

    def _type_of(self, address: int) -> "_Type":
        """The type of an object. Raises Unreadable if there is no live object."""
        references, kind = struct.unpack("<QQ", self._read(address, 16))
        if not 0 < references <= _MAX_REFS:
            raise Unreadable("no object")
        return self._type(kind)

    def _type(self, address: int) -> "_Type":
        kind = self._types.get(address)
        if kind is None:
            kind = _Type(address, self._read(address, _TYPE_SIZE))
            meta = _Type(kind.meta, self._read(kind.meta, _TYPE_SIZE))
            if not meta.flags & _IS_TYPE:
                raise Unreadable("no type")
            name = self._read(kind.name_at, 1) + self._read_some(kind.name_at + 1, 255)
            kind.name = name.partition(b"\0")[0].decode("utf-8", "replace")
            if not kind.name.replace(".", "_").isidentifier():
                raise Unreadable("no type")
            self._types[address] = kind
        return kind

    def _bases(self, kind: "_Type") -> "list[_Type]":
        bases = kind.bases
        if bases is None:
            bases = kind.bases = [self._type(base) for base in self._mro(kind)]
        return bases

    def _mro(self, kind: "_Type") -> "tuple[int, ...]":
        mro = self._pointer(kind.address + _MRO)
        if not self._type_of(mro).flags & _IS_TUPLE:
            raise Unreadable("bases")
        count = self._number(mro + 16)
        if not 0 < count <= MAX_BASES:
            raise Unreadable("bases")
        return struct.unpack("<%dQ" % count, self._read(mro + 24, 8 * count))

    # -- memory ------------------------------------------------------------------------------------------------------

    def _number(self, address: int) -> int:
        return int(struct.unpack("<Q", self._read(address, 8))[0])

    def _pointer(self, address: int) -> int:
        pointer = self._number(address)
        if pointer < 4096 or pointer & 7:
            raise Unreadable("no pointer")
        return pointer

    def _read(self, address: int, size: int) -> bytes:
        data = self._read_some(address, size)
        if len(data) != size:
            raise Unreadable("memory")
        return data

    def _read_some(self, address: int, size: int) -> bytes:
        self._left -= 1
        if self._left < 0 or not 4096 <= address < 1 << 56:
            raise Unreadable("memory")
        try:
            return os.pread(self._fd, size, address)
        except OSError:
            raise Unreadable("memory")


class _Type(object):
    """The members of a PyTypeObject that are used here."""

    __slots__ = ("address", "bases", "basicsize", "dictoffset", "flags", "meta", "name", "name_at")

    def __init__(self, address: int, data: bytes) -> None:
        self.address = address
        self.meta = int(struct.unpack_from("<Q", data, 8)[0])
        self.name_at, self.basicsize = struct.unpack_from("<Qq", data, _NAME)
        self.flags = int(struct.unpack_from("<Q", data, _FLAGS)[0])
        self.dictoffset = int(struct.unpack_from("<q", data, _DICTOFFSET)[0])
        self.name = ""
        self.bases: "list[_Type] | None" = None
        if address & 7 or not 16 <= self.basicsize <= 1 << 20:
            raise Unreadable("no type")
