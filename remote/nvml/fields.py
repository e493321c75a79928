"""NVML's field values: many figures in one call, each with a return value of its own."""

import struct

#: nvml.h: the scope that means all links together.
ALL_LINKS = 0xFFFFFFFF
#: nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value.
_LAYOUT = struct.Struct("=IIqqIIQ")
_DOUBLE, _U32, _U64, _I64, _I32, _U16 = 0, 1, 3, 4, 5, 6
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
        self._set(self._all)

    def _set(self, fields):
        self._fields = list(fields)
        self._array = self._function = None

    def read(self):
        """{name: (value, bits)} of what was answered. Raises Lost."""
        if not self._fields:
            return {}
        nvml = self._asker.nvml
        if getattr(nvml, "nvmlDeviceGetFieldValues", None) is None:
            self._drop_all("this binding has no nvmlDeviceGetFieldValues")
            return {}
        try:
            values = self._answers(nvml)
        except nvml.NVMLError as error:
            names = tuple(field.name for field in self._fields)
            code = getattr(error, "value", None)
            if code == _INVALID_ARGUMENT and len(self._fields) > 1:
                return self._one_by_one()
            self._asker.fail(names, code, str(error))
            if self._asker.gave_up(names[0]):
                self._set(())
            return {}
        return self._sort(values)

    def _answers(self, nvml):
        """The structs as the driver filled them in. Their array is made once: pynvml makes one at every call."""
        if self._function is None:
            find = getattr(nvml, "_nvmlGetFunctionPointer", None)
            if find is None:  # a pynvml with other insides
                return nvml.nvmlDeviceGetFieldValues(self._asker.handle, [(one.id, one.scope) for one in self._fields])
            function = find("nvmlDeviceGetFieldValues")
            self._array = (nvml.c_nvmlFieldValue_t * len(self._fields))()
            for place, field in enumerate(self._fields):
                _LAYOUT.pack_into(self._array, place * _LAYOUT.size, field.id, field.scope, 0, 0, 0, 0, 0)
            self._function = function
        code = self._function(self._asker.handle, len(self._fields), self._array)
        if code:
            raise nvml.NVMLError(code)
        return self._array

    def _sort(self, values):
        found, refused = {}, []
        for place, (_, _, _, _, kind, code, raw) in enumerate(_LAYOUT.iter_unpack(bytes(values))):
            field = self._fields[place]
            if code:
                refused.append((field, code))
            elif kind == _U64:
                found[field.name] = (raw, 64)
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
        self._set([one for one in self._fields if one is not field])

    def _drop_all(self, reason):
        self._asker.refuse([field.name for field in self._fields], reason)
        self._set(())


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
