"""Pickles of plain values, read without pickle: nothing in them can be called, because nothing here can call.

PyTorch's dumps are dicts, lists, tuples, texts and numbers. Every other opcode (GLOBAL, REDUCE, BUILD, …) is an error.
"""

import struct
import time

#: How often the deadline is looked at, in opcodes.
_LOOK = 1 << 14
_MARK = object()


class BadPickle(ValueError):
    """Bytes that are no pickle of plain values; the message says what, and at which byte."""


def loads(data, until=None):
    """The value in `data`; `until` is a time.monotonic() after which it gives up. Raises BadPickle."""
    reader = _Reader(data, until)
    try:
        return reader.read()
    except (IndexError, KeyError, struct.error):
        raise BadPickle("it ends, or refers to nothing, at byte %d" % reader.at)
    except (TypeError, ValueError, OverflowError, MemoryError, AttributeError) as error:
        if isinstance(error, BadPickle):
            raise
        raise BadPickle("%s at byte %d" % (type(error).__name__, reader.at))


class _Reader(object):
    def __init__(self, data, until):
        self.data, self.until = data, until
        self.at = 0
        self.stack, self.memo = [], {}

    def read(self):
        data, steps, count = self.data, _STEPS, 0
        while True:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                value = self.stack.pop()
                if value is _MARK:
                    raise BadPickle("nothing but a mark at byte %d" % self.at)
                return value
            step = steps.get(code)
            if step is None:
                raise BadPickle("opcode 0x%02x at byte %d is not for plain values" % (code, self.at - 1))
            step(self)
            count += 1
            if self.until is not None and count % _LOOK == 0 and time.monotonic() > self.until:
                raise BadPickle("it was not read in time (%d of %d bytes)" % (self.at, len(data)))

    # -- pieces ------------------------------------------------------------------------------------------------------

    def take(self, count):
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise BadPickle("it is cut off: %d bytes are wanted at byte %d" % (count, self.at))
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, form, size):
        (value,) = struct.unpack(form, self.take(size))
        return value

    def top(self, kind):
        value = self.stack[-1]
        if type(value) is not kind:
            raise BadPickle("a %s is wanted at byte %d" % (kind.__name__, self.at))
        return value

    def since_mark(self):
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise BadPickle("no mark before byte %d" % self.at)

    def pop(self):
        value = self.stack.pop()
        if value is _MARK:
            raise BadPickle("a mark where a value is wanted, at byte %d" % self.at)
        return value


def _text(size):
    def step(reader):
        reader.stack.append(bytes(reader.take(size(reader))).decode("utf-8", "backslashreplace"))

    return step


def _push(value):
    def step(reader):
        reader.stack.append(value)

    return step


def _new(kind):
    def step(reader):
        reader.stack.append(kind())

    return step


def _value(form, size):
    def step(reader):
        reader.stack.append(reader.number(form, size))

    return step


def _put(form, size):
    def step(reader):
        reader.memo[reader.number(form, size)] = reader.stack[-1]

    return step


def _get(form, size):
    def step(reader):
        reader.stack.append(reader.memo[reader.number(form, size)])

    return step


def _skip(size):
    def step(reader):
        reader.take(size)

    return step


def _tuple(count):
    def step(reader):
        items = tuple(reader.pop() for _ in range(count))
        reader.stack.append(items[::-1])

    return step


def _long(reader):
    size = reader.data[reader.at]
    reader.at += 1
    if size > 16:
        raise BadPickle("a number of %d bytes at byte %d" % (size, reader.at))
    reader.stack.append(int.from_bytes(bytes(reader.take(size)), "little", signed=True))


def _memoize(reader):
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _mark(reader):
    reader.stack.append(_MARK)


def _append(reader):
    value = reader.pop()
    reader.top(list).append(value)


def _appends(reader):
    items = reader.since_mark()
    reader.top(list).extend(items)


def _set_item(reader):
    value, key = reader.pop(), reader.pop()
    reader.top(dict)[_key(key)] = value


def _set_items(reader):
    items = reader.since_mark()
    if len(items) % 2:
        raise BadPickle("a key without a value before byte %d" % reader.at)
    into = reader.top(dict)
    for at in range(0, len(items), 2):
        into[_key(items[at])] = items[at + 1]


def _key(key):
    if not isinstance(key, (str, int, float)):  # a tuple could take for ever to hash
        raise BadPickle("a %s as a key" % type(key).__name__)
    return key


def _tuple_since_mark(reader):
    reader.stack.append(tuple(reader.since_mark()))


def _list_since_mark(reader):
    reader.stack.append(reader.since_mark())


def _short(reader):
    return reader.number("<B", 1)


def _medium(reader):
    return reader.number("<I", 4)


def _large(reader):
    return reader.number("<Q", 8)


#: Of pickle's opcodes those that make plain values (protocols 2 to 5).
_STEPS = {
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
