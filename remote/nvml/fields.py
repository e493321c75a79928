"""NVML field values: many metrics in one call, each with its own return value."""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .call import NvmlDevice

    Values = dict[Any, tuple[Any, int]]  # name: (value, bits)

#: nvml.h: the scope that means all links together.
ALL_LINKS = 0xFFFFFFFF
#: nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value.
_LAYOUT = struct.Struct("=IIqqIIQ")
_DOUBLE, _U32, _U64, _I64, _I32, _U16 = 0, 1, 3, 4, 5, 6  # nvml.h, nvmlValueType_t
_INVALID_ARGUMENT = 2


class NvmlField(object):
    """One metric: the name under which it is reported, of any type, and its number and scope in nvml.h."""

    __slots__ = ("id", "name", "scope")

    def __init__(self, name: "Any", number: int, scope: int = 0) -> None:
        self.name = name
        self.id = number
        self.scope = scope


class FieldReader(object):
    """Reads a set of fields of one GPU. Unsupported ones are dropped and recorded with the device until `reset`."""

    def __init__(self, device: "NvmlDevice", fields: "Iterable[NvmlField]") -> None:
        self._device = device
        self._all = tuple(fields)
        self.reset()

    def reset(self) -> None:
        """Read all fields again."""
        self._set(self._all)

    def _set(self, fields: "Iterable[NvmlField]") -> None:
        self._fields = list(fields)
        self._array: "Any" = None
        self._function: "Any" = None

    def read(self) -> "Values":
        """{name: (value, bits)} of the supported fields. Raises GpuLost."""
        if not self._fields:
            return {}
        nvml = self._device.nvml
        if getattr(nvml, "nvmlDeviceGetFieldValues", None) is None:
            self._drop_all("this binding has no nvmlDeviceGetFieldValues")
            return {}
        try:
            values = self._call(nvml)
            self._device.succeeded += 1
        except nvml.NVMLError as error:
            names = tuple(field.name for field in self._fields)
            code = getattr(error, "value", None)
            if code == _INVALID_ARGUMENT and len(self._fields) > 1:
                return self._read_individually()
            self._device.note_failure(code, "nvmlDeviceGetFieldValues", error)
            self._device.record_failure(names, code, str(error))
            if self._device.is_disabled(names[0]):
                self._set(())
            return {}
        return self._decode(values)

    def _call(self, nvml: "Any") -> "Any":
        """The structs filled by the driver. Their array is made once: pynvml makes one at every call."""
        if self._function is None:
            resolve = getattr(nvml, "_nvmlGetFunctionPointer", None)
            if resolve is None:  # a pynvml with other internals
                pairs = [(field.id, field.scope) for field in self._fields]
                return nvml.nvmlDeviceGetFieldValues(self._device.handle, pairs)
            function = resolve("nvmlDeviceGetFieldValues")
            self._array = (nvml.c_nvmlFieldValue_t * len(self._fields))()
            for index, field in enumerate(self._fields):
                _LAYOUT.pack_into(self._array, index * _LAYOUT.size, field.id, field.scope, 0, 0, 0, 0, 0)
            self._function = function
        code = self._function(self._device.handle, len(self._fields), self._array)
        if code:
            raise nvml.NVMLError(code)
        return self._array

    def _decode(self, structs: "Any") -> "Values":
        values: "Values" = {}
        refused: "dict[int, list[Any]]" = {}  # names by return value
        for index, (_, _, _, _, kind, code, raw) in enumerate(_LAYOUT.iter_unpack(bytes(structs))):
            field = self._fields[index]
            if code:
                refused.setdefault(code, []).append(field.name)
            elif kind == _U64:
                values[field.name] = (raw, 64)
            else:
                values[field.name] = _decoded(kind, raw)
        if refused:
            for code, names in refused.items():
                self._device.record_failure(names, code, str(self._device.nvml.NVMLError(code)))
            self._set([field for field in self._fields if not self._device.is_disabled(field.name)])
        return values

    def _read_individually(self) -> "Values":
        """Find the fields that an old driver supports: it rejects the whole call because of one unknown field."""
        values: "Values" = {}
        for field in list(self._fields):
            values.update(FieldReader(self._device, (field,)).read())
        self._set([field for field in self._fields if not self._device.is_disabled(field.name)])
        return values

    def _drop_all(self, reason: str) -> None:
        self._device.mark_unsupported([field.name for field in self._fields], reason)
        self._set(())


def _decoded(kind: int, raw: int) -> "tuple[Any, int]":
    """(value, bits) of the union; bits beyond its type are undefined."""
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
