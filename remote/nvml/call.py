"""NVML calls on one GPU: a result, or None and the reason, kept once per field."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

#: nvml.h, nvmlReturn_t: GPU is off the bus; a GPU that existed is not found.
LOST = (15, 28)
#: nvml.h, nvmlReturn_t: results that repeat until a mode changes: invalid argument, not supported, no permission, no
#: such function, struct version mismatch, deprecated. `reset` allows another try.
LASTING = (2, 3, 4, 13, 25, 26)


class GpuLost(Exception):
    """The driver cannot reach the GPU; the text is the driver's."""


class NvmlDevice(object):
    """One GPU's handle. `unsupported` is {field: reason} of the fields without a value."""

    def __init__(self, nvml: "Any", handle: "Any") -> None:
        self.nvml = nvml
        self.handle = handle
        self.unsupported: "dict[str, str]" = {}
        self._disabled: "set[str]" = set()
        self._choice: "dict[str, int]" = {}  # field: index of the alternative that succeeded last

    def call(self, fields: "Sequence[str]", name: str, *arguments: "Any") -> "Any":
        """Result of the function `name`, from which `fields` are read; None if it failed. Raises GpuLost."""
        if fields[0] in self._disabled:
            return None
        return self._call(fields, name, arguments)

    def call_first(self, fields: "Sequence[str]", calls: "Sequence[Sequence[Any]]") -> "Any":
        """First result of several alternatives, (function name, arguments…) each; the one that succeeds is reused."""
        field = fields[0]
        if field in self._disabled:
            return None
        for number in range(self._choice.get(field, 0), len(calls)):
            result = self._call(fields, calls[number][0], calls[number][1:])
            if result is not None:
                self._choice[field] = number
                self.mark_supported(fields)
                return result
            if field not in self._disabled:
                return None  # a transient failure: keep the alternative
            self._disabled.discard(field)
        self._disabled.add(field)
        return None

    def is_disabled(self, field: str) -> bool:
        """Whether a lasting failure of this field was recorded since the last `reset`."""
        return field in self._disabled

    def _call(self, fields: "Sequence[str]", name: str, arguments: "Sequence[Any]") -> "Any":
        function = getattr(self.nvml, name, None)
        if function is None:
            self.mark_unsupported(fields, "this binding has no %s" % name)
            return None
        try:
            return function(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            self.record_failure(fields, getattr(error, "value", None), str(error))
        except (UnicodeDecodeError, ValueError) as error:
            self.record_failure(fields, None, "invalid value from the driver: %s" % error)
        return None

    def record_failure(self, fields: "Iterable[str]", code: "int | None", text: str) -> None:
        """Record a failure with its NVML return value. Raises GpuLost if the GPU is gone."""
        if code in LOST:
            raise GpuLost(text)
        for field in fields:
            self.unsupported.setdefault(field, text)
        if code in LASTING:
            self._disabled.update(fields)

    def mark_unsupported(self, fields: "Iterable[str]", reason: str) -> None:
        """Disable fields that have no source here."""
        for field in fields:
            self.unsupported[field] = reason
        self._disabled.update(fields)

    def mark_supported(self, fields: "Iterable[str]") -> None:
        """Enable fields that got a value, whatever failed before."""
        for field in fields:
            self.unsupported.pop(field, None)
            self._disabled.discard(field)

    def reset(self) -> None:
        """Try every field again."""
        self.unsupported = {}
        self._disabled.clear()
        self._choice.clear()
