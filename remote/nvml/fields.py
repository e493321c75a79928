"""NVML's field values: many figures in one call, each with a return value of its own."""

import struct

#: nvml.h: the scope that means all links together.
ALL_LINKS = 0xFFFFFFFF
#: nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value.
_LAYOUT = struct.Struct("=IIqqIIQ")
_DOUBLE, _U32, _I64, _I32, _U16 = 0, 1, 4, 5, 6
_INVALID_ARGUMENT = 2


class Field(object):
    """One figure: the name under which it is reported, and its number and scope in nvml.h."""

    __slots__ = ("id", "name", "scope")

    def __init__(self, name, number, scope=0):
        self.name = name
        self.id = number
        self.scope = scope


class FieldReader(object):
    """Reads a set of fields of one GPU. What is not supported is dropped and noted with the asker, until `forget`."""

    def __init__(self, asker, fields):
        self._asker = asker
        self._all = tuple(fields)
        self.forget()

    def forget(self):
        self._fields = list(self._all)
        self._ids = [(field.id, field.scope) for field in self._all]

    def read(self):
        """{name: (value, bits)} of what was answered. Raises Lost."""
        if not self._fields:
            return {}
        names = tuple(field.name for field in self._fields)
        nvml = self._asker.nvml
        function = getattr(nvml, "nvmlDeviceGetFieldValues", None)
        if function is None:
            self._drop_all("this binding has no nvmlDeviceGetFieldValues")
            return {}
        try:
            values = function(self._asker.handle, self._ids)
        except nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code == _INVALID_ARGUMENT and len(self._fields) > 1:
                return self._one_by_one()
            self._asker.fail(names, code, str(error))
            if self._asker.gave_up(names[0]):
                self._fields, self._ids = [], []
            return {}
        return self._sort(values)

    def _sort(self, values):
        found, refused = {}, []
        for place, (_, _, _, _, kind, code, raw) in enumerate(_LAYOUT.iter_unpack(bytes(values))):
            field = self._fields[place]
            if code:
                refused.append((field, code))
            else:
                found[field.name] = _decoded(kind, raw)
        for field, code in refused:
            self._asker.fail((field.name,), code, str(self._asker.nvml.NVMLError(code)))
            if self._asker.gave_up(field.name):
                self._drop(field)
        return found

    def _one_by_one(self):
        """An old driver refuses all fields because of one it has never heard of: find the ones it knows."""
        found = {}
        for field in list(self._fields):
            alone = FieldReader(self._asker, (field,))
            found.update(alone.read())
            if self._asker.gave_up(field.name):
                self._drop(field)
        return found

    def _drop(self, field):
        at = self._fields.index(field)
        del self._fields[at], self._ids[at]

    def _drop_all(self, reason):
        self._asker.refuse([field.name for field in self._fields], reason)
        self._fields, self._ids = [], []


def _decoded(kind, raw):
    """(value, bits): the union holds what its type says, and rubbish in the bits beyond."""
    if kind == _U32:
        return raw & 0xFFFFFFFF, 32
    if kind == _U16:
        return raw & 0xFFFF, 16
    if kind == _I32:
        raw &= 0xFFFFFFFF
        return raw - (1 << 32 if raw >> 31 else 0), 32
    if kind == _I64:
        return raw - (1 << 64 if raw >> 63 else 0), 64
    if kind == _DOUBLE:
        return struct.unpack("=d", struct.pack("=Q", raw))[0], 64
    return raw, 64
