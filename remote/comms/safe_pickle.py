"""Pickle parser for plain values that cannot execute anything.

PyTorch's dumps are dicts, lists, tuples, strings and numbers. Other opcodes (GLOBAL, REDUCE, BUILD, …) are errors.
"""

import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Step = Callable[["_Reader"], None]
    ReadSize = Callable[["_Reader"], int]

#: Opcodes between two checks of the deadline.
_CHECK_EVERY = 1 << 14
_MARK = object()


class BadPickle(ValueError):
    """Not a pickle of plain values; the text is the reason, with its byte offset."""


def loads(data: bytes, deadline: "float | None" = None) -> "Any":
    """The value in `data`; `deadline` in time.monotonic(). Raises BadPickle."""
    reader = _Reader(data, deadline)
    try:
        return reader.read()
    except (IndexError, KeyError, struct.error):
        raise BadPickle("truncated, or an invalid reference, at byte %d" % reader.offset)
    except (TypeError, ValueError, OverflowError, MemoryError, AttributeError) as error:
        if isinstance(error, BadPickle):
            raise
        raise BadPickle("%s at byte %d" % (type(error).__name__, reader.offset))


class _Reader(object):
    def __init__(self, data: bytes, deadline: "float | None") -> None:
        self.data, self.deadline = data, deadline
        self.offset = 0
        self.stack: "list[Any]" = []
        self.memo: "dict[int, Any]" = {}

    def read(self) -> "Any":
        data, steps, count = self.data, _STEPS, 0
        while True:
            code = data[self.offset]
            self.offset += 1
            if code == 0x2E:  # STOP
                value = self.stack.pop()
                if value is _MARK:
                    raise BadPickle("no value before STOP at byte %d" % self.offset)
                return value
            step = steps.get(code)
            if step is None:
                raise BadPickle("opcode 0x%02x at byte %d does not build plain values" % (code, self.offset - 1))
            step(self)
            count += 1
            if self.deadline is not None and count % _CHECK_EVERY == 0 and time.monotonic() > self.deadline:
                raise BadPickle("not read in time (%d of %d bytes)" % (self.offset, len(data)))

    # -- primitives --------------------------------------------------------------------------------------------------

    def read_bytes(self, count: int) -> bytes:
        end = self.offset + count
        if count < 0 or end > len(self.data):
            raise BadPickle("truncated: %d bytes expected at byte %d" % (count, self.offset))
        part = self.data[self.offset : end]
        self.offset = end
        return part

    def number(self, form: str, size: int) -> "Any":
        (value,) = struct.unpack(form, self.read_bytes(size))
        return value

    def top(self, kind: type) -> "Any":
        value = self.stack[-1]
        if type(value) is not kind:
            raise BadPickle("%s expected at byte %d" % (kind.__name__, self.offset))
        return value

    def since_mark(self) -> "list[Any]":
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise BadPickle("no MARK before byte %d" % self.offset)

    def pop(self) -> "Any":
        value = self.stack.pop()
        if value is _MARK:
            raise BadPickle("MARK instead of a value at byte %d" % self.offset)
        return value


def _text(size: "ReadSize") -> "Step":
    def step(reader: "_Reader") -> None:
        reader.stack.append(bytes(reader.read_bytes(size(reader))).decode("utf-8", "backslashreplace"))

    return step


def _push(value: "Any") -> "Step":
    def step(reader: "_Reader") -> None:
        reader.stack.append(value)

    return step


def _new(kind: "Callable[[], Any]") -> "Step":
    def step(reader: "_Reader") -> None:
        reader.stack.append(kind())

    return step


def _value(form: str, size: int) -> "Step":
    def step(reader: "_Reader") -> None:
        reader.stack.append(reader.number(form, size))

    return step


def _put(form: str, size: int) -> "Step":
    def step(reader: "_Reader") -> None:
        reader.memo[reader.number(form, size)] = reader.stack[-1]

    return step


def _get(form: str, size: int) -> "Step":
    def step(reader: "_Reader") -> None:
        reader.stack.append(reader.memo[reader.number(form, size)])

    return step


def _skip(size: int) -> "Step":
    def step(reader: "_Reader") -> None:
        reader.read_bytes(size)

    return step


def _tuple(count: int) -> "Step":
    def step(reader: "_Reader") -> None:
        items = tuple(reader.pop() for _ in range(count))
        reader.stack.append(items[::-1])

    return step


def _long(reader: "_Reader") -> None:
    size = reader.data[reader.offset]
    reader.offset += 1
    if size > 16:
        raise BadPickle("integer of %d bytes at byte %d" % (size, reader.offset))
    reader.stack.append(int.from_bytes(bytes(reader.read_bytes(size)), "little", signed=True))


def _memoize(reader: "_Reader") -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _mark(reader: "_Reader") -> None:
    reader.stack.append(_MARK)


def _append(reader: "_Reader") -> None:
    value = reader.pop()
    reader.top(list).append(value)


def _appends(reader: "_Reader") -> None:
    items = reader.since_mark()
    reader.top(list).extend(items)


def _set_item(reader: "_Reader") -> None:
    value, key = reader.pop(), reader.pop()
    reader.top(dict)[_key(key)] = value


def _set_items(reader: "_Reader") -> None:
    items = reader.since_mark()
    if len(items) % 2:
        raise BadPickle("key without a value before byte %d" % reader.offset)
    into = reader.top(dict)
    for index in range(0, len(items), 2):
        into[_key(items[index])] = items[index + 1]


def _key(key: "Any") -> "Any":
    if not isinstance(key, (str, int, float)):  # hashing a nested tuple has no time limit
        raise BadPickle("%s as a key" % type(key).__name__)
    return key


def _tuple_since_mark(reader: "_Reader") -> None:
    reader.stack.append(tuple(reader.since_mark()))


def _list_since_mark(reader: "_Reader") -> None:
    reader.stack.append(reader.since_mark())


def _short(reader: "_Reader") -> int:
    return int(reader.number("<B", 1))


def _medium(reader: "_Reader") -> int:
    return int(reader.number("<I", 4))


def _large(reader: "_Reader") -> int:
    return int(reader.number("<Q", 8))


#: The opcodes of pickle (protocols 2 to 5) that build plain values.
_STEPS: "dict[int, Step]" = {
    0x80: _skip(1), 0x95: _skip(8),  # PROTO, FRAME
    ord("("): _mark, ord("}"): _new(dict), ord("]"): _new(list), ord(")"): _push(()),
    ord("X"): _text(_medium), 0x8C: _text(_short), 0x8D: _text(_large),
    ord("U"): _text(_short), ord("T"): _text(_medium), ord("C"): _text(_short), ord("B"): _text(_medium),
    ord("K"): _value("<B", 1), ord("M"): _value("<H", 2), ord("J"): _value("<i", 4), ord("G"): _value(">d", 8),
    0x8A: _long, ord("N"): _push(None), 0x88: _push(True), 0x89: _push(False),
    ord("q"): _put("<B", 1), ord("r"): _put("<I", 4), 0x94: _memoize,
    ord("h"): _get("<B", 1), ord("j"): _get("<I", 4),
    ord("a"): _append, ord("e"): _appends, ord("s"): _set_item, ord("u"): _set_items,
    ord("t"): _tuple_since_mark, 0x85: _tuple(1), 0x86: _tuple(2), 0x87: _tuple(3), ord("l"): _list_since_mark,
}  # fmt: skip
