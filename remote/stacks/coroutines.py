"""Suspended coroutines of a running process: where each is, its variables, and the values on its stack.

Structures: Include/internal/pycore_frame.h, Include/cpython/code.h, genobject.h and frameobject.h of CPython 3.9 to
3.13; tables of lines: Objects/lnotab_notes.txt (3.9, 3.10) and locations.md (from 3.11 on). Coroutines that Cython
compiled, as those of Ray's actors, are of Cython/Utility/Coroutine.c (3.0 and 3.1).
"""

import struct

from ..proc.procfs import printable
from .objects import ObjectMemory, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Sequence

    from ..proc.procfs import ProcFs

#: The CPython versions whose coroutines are known.
OLDEST, NEWEST = (3, 9), (3, 13)
MAX_NAME, MAX_FILE = 256, 512
#: Bytes of a table of lines; words of the variables and the stack of one coroutine.
_MAX_TABLE, _MAX_WORDS = 65536, 4096
_IS_BYTES, _IS_STR = 1 << 27, 1 << 28
#: Module of the types of Cython's coroutines and generators: _cython_3_0_12.coroutine.
_CYTHON = "_cython_"
#: Words of such an object: the first that may refer to what it awaits, and the most it has.
_FIRST_COMPILED, _MOST_COMPILED = 4, 32
#: PyFrameObject of 3.9 and 3.10: its stack top or depth, the last instruction, and the variables.
_FRAMES = {(3, 9): (72, 104, 360), (3, 10): (80, 96, 352)}
#: PyCodeObject: number of variables (from 3.11 on with cells), first line, file, name, line table.
_CODES = {
    (3, 9): (28, 40, 104, 112, 120), (3, 10): (28, 40, 104, 112, 120), (3, 11): (76, 72, 112, 128, 136),
    (3, 12): (72, 68, 112, 128, 136), (3, 13): (72, 68, 112, 128, 136),
}  # fmt: skip


def is_compiled(kind: str) -> bool:
    """Whether a type is that of Cython's coroutines or generators."""
    return kind.startswith(_CYTHON) and kind.endswith((".coroutine", ".generator", ".async_generator"))


class _Code(object):
    """What a code object says of the places of its instructions."""

    __slots__ = ("file", "first", "function", "start", "table", "variables")

    def __init__(self, function: str, file: str, variables: int, first: int, table: bytes, start: int) -> None:
        self.function, self.file, self.variables = function, file, variables
        self.first, self.table, self.start = first, table, start


class CoroutineFrame(object):
    """One suspended coroutine: its place, its variables and the values on its stack (addresses, 0: none)."""

    __slots__ = ("file", "function", "line", "stack", "variables")

    def __init__(self, code: "_Code", line: int, words: "Sequence[int]", bottom: int) -> None:
        self.function, self.file, self.line = code.function, code.file, line
        self.variables, self.stack = words[: code.variables], words[bottom:]

    def is_in(self, module: str, *functions: str) -> bool:
        """Whether this is one of these functions of a module of asyncio."""
        return self.function.rpartition(".")[2] in functions and self.file.endswith("asyncio/%s.py" % module)


class CoroutineMemory(ObjectMemory):
    """The coroutines of one process. A context manager; raises Unreadable if its Python is not known."""

    def __init__(self, procfs: "ProcFs", pid: int) -> None:
        super(CoroutineMemory, self).__init__(procfs, pid)
        if not OLDEST <= self._version <= NEWEST:
            self.__exit__()
            raise Unreadable("tasks are not read in this version of Python")
        self._codes: "dict[int, _Code]" = {}

    def frame(self, run: int) -> "CoroutineFrame | None":
        """The frame of a suspended coroutine; None if it has ended or is running. Raises Unreadable."""
        if self._version <= (3, 10):
            return self._frame_object(run)
        start = run + (80 if self._version == (3, 11) else 72)  # cr_iframe
        if bytearray(self._read(start - 5, 1))[0] < 0x80:  # cr_frame_state: below 0 if suspended
            return None
        head = self._read(start, 72)
        code_at = int(struct.unpack_from("<Q", head, 32 if self._version == (3, 11) else 0)[0])
        instruction, top = struct.unpack_from("<Qi", head, 56)
        code = self._code(code_at)
        if not code.variables <= top <= _MAX_WORDS:
            raise Unreadable("frame")
        words = struct.unpack("<%dQ" % top, self._read(start + 72, 8 * top) if top else b"")
        return CoroutineFrame(code, self._line(code, instruction - code.start), words, code.variables)

    def compiled_frame(self, run: int) -> "tuple[CoroutineFrame, int]":
        """(frame, address of what it awaits; 0: nothing) of a coroutine that Cython compiled. Raises Unreadable.

        Its line is unknown, and its file is its module. What it awaits is the last object before its name: between
        them Cython 3.1 has the address of a function.
        """
        count = min(self._type_of(run).basicsize // 8, _MOST_COMPILED)
        words = struct.unpack("<%dQ" % count, self._read(run, 8 * count))
        texts = [self._has_flag(word, _IS_STR) for word in words]
        names = next((i for i in range(_FIRST_COMPILED, count - 4) if texts[i] and texts[i + 1]), 0)
        if not names:
            raise Unreadable("compiled coroutine")
        if names + 5 < count and words[names + 5] >> 32 & 0xFF:  # is_running, behind the label at which it resumes
            raise Unreadable("running")
        function = printable(self.text_of(words[names + 1]), MAX_NAME)
        module = printable(self.text_of(words[names + 2]), MAX_FILE) if texts[names + 2] else ""
        before = reversed(words[max(_FIRST_COMPILED, names - 2) : names])
        awaited = next((word for word in before if self._has_flag(word, 0)), 0)
        return CoroutineFrame(_Code(function, module, 0, 0, b"", 0), 0, (), 0), awaited

    def _has_flag(self, address: int, flag: int) -> bool:
        """Whether an object is at an address, and its type has this flag (0: any)."""
        try:
            return bool(address) and address & 7 == 0 and self._type_of(address).flags & flag == flag
        except (Unreadable, struct.error):
            return False

    def _frame_object(self, run: int) -> "CoroutineFrame | None":
        """The same of Python 3.9 and 3.10. Raises Unreadable."""
        address = self._number(run + 16)
        if not address:
            return None
        if self._type_of(address).name != "frame":
            raise Unreadable("frame")
        top_at, last_at, first = _FRAMES[self._version]
        code, bottom = self._code(self._pointer(address + 32)), self._pointer(address + 64)
        if self._version == (3, 9):
            top = self._number(address + top_at)
            depth = (top - bottom) // 8 if top else 0
        else:
            depth = int(struct.unpack("<i", self._read(address + top_at, 4))[0])
        cells = (bottom - address - first) // 8
        if not (0 <= depth <= _MAX_WORDS and code.variables <= cells <= _MAX_WORDS):
            raise Unreadable("frame")
        last = int(struct.unpack("<i", self._read(address + last_at, 4))[0])
        count = cells + depth
        words = struct.unpack("<%dQ" % count, self._read(address + first, 8 * count) if count else b"")
        return CoroutineFrame(code, self._line(code, last if self._version == (3, 9) else 2 * last), words, cells)

    def _code(self, address: int) -> "_Code":
        """A code object. Raises Unreadable."""
        code = self._codes.get(address)
        if code is None:
            kind = self._type_of(address)
            if kind.name != "code":
                raise Unreadable("code")
            count, first, file, function, table = _CODES[self._version]
            variables, line = (int(struct.unpack("<i", self._read(address + place, 4))[0]) for place in (count, first))
            if not 0 <= variables <= _MAX_WORDS:
                raise Unreadable("code")
            code = self._codes[address] = _Code(
                printable(self.text_of(self._pointer(address + function)), MAX_NAME),
                printable(self.text_of(self._pointer(address + file)), MAX_FILE),
                variables, line, self._bytes_of(self._pointer(address + table)), address + kind.basicsize,
            )  # fmt: skip
        return code

    def _line(self, code: "_Code", offset: int) -> int:
        """The line of an instruction, by its offset in bytes; 0 if unknown. The first line before the first one."""
        if offset < 0:
            return max(0, code.first)
        decode = _old_lines if self._version == (3, 9) else _lines_310 if self._version == (3, 10) else _lines
        try:
            line = next((line for end, line in decode(code.table, code.first) if offset < end), None)
        except (IndexError, struct.error):
            return 0
        return line if line is not None and 0 < line < 1 << 31 else 0

    def _bytes_of(self, address: int) -> bytes:
        size = self._number(address + 16)
        if not self._type_of(address).flags & _IS_BYTES or size > _MAX_TABLE:
            raise Unreadable("bytes")
        return self._read(address + 32, size) if size else b""

    def text_of(self, address: int) -> str:
        """The characters of a str of any alphabet, as many as are shown. Raises Unreadable."""
        if not self._type_of(address).flags & _IS_STR:
            raise Unreadable("str")
        length = min(self._number(address + 16), MAX_FILE)
        state = bytearray(self._read(address + 32, 1))[0]
        width, is_compact, is_ascii = state >> 2 & 7, state & 32, state & 64
        if width not in (1, 2, 4) or not is_compact:
            raise Unreadable("str")
        start = self._characters + (0 if is_ascii else 16 if self._version >= (3, 12) else 24)
        data = self._read(address + start, length * width) if length else b""
        return data.decode(("latin-1", "utf-16-le", "", "utf-32-le")[width - 1], "replace")


def _old_lines(table: bytes, line: int) -> "Iterator[tuple[int, int | None]]":
    """(end of a range in bytes, its line) of co_lnotab."""
    end = 0
    for start, delta in zip(bytearray(table[::2]), bytearray(table[1::2])):  # noqa: B905
        if start:
            end += start
            yield end, line
        line += delta - 256 if delta > 127 else delta
    yield 1 << 62, line


def _lines_310(table: bytes, line: int) -> "Iterator[tuple[int, int | None]]":
    """(end of a range in bytes, its line; None: it has none) of co_linetable of Python 3.10."""
    end = 0
    for size, delta in zip(bytearray(table[::2]), bytearray(table[1::2])):  # noqa: B905
        end += size
        if delta == 128:
            yield end, None
            continue
        line += delta - 256 if delta > 127 else delta
        yield end, line


def _lines(table: bytes, line: int) -> "Iterator[tuple[int, int | None]]":
    """(end of a range in bytes, its line; None: it has none) of co_linetable from Python 3.11 on."""
    entries, end, place = bytearray(table), 0, 0
    while place < len(entries):
        head = entries[place]
        form, end = head >> 3 & 15, end + 2 * ((head & 7) + 1)
        following = place + 1
        while following < len(entries) and not entries[following] & 128:  # only a first byte has this bit
            following += 1
        if form in (11, 12):
            line += form - 10
        elif form in (13, 14):
            value = shift = 0
            for byte in entries[place + 1 : following]:
                value |= (byte & 63) << shift
                shift += 6
                if not byte & 64:
                    break
            line += -(value >> 1) if value & 1 else value >> 1
        yield end, None if form == 15 else line
        place = following
