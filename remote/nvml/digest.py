"""Sub-second statistics of one GPU between two ticks, so that a spike of 0.1 s is kept in one record a second."""

from .metrics import read_fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .call import NvmlDevice

#: Metrics sampled more often than once a second: cheap to read and fast to change.
FIELDS = ("util_pct", "mem_used_bytes", "power_w", "temp_c", "sm_clock_mhz")


class MetricDigest(object):
    """Accumulates samples of one GPU until `flush`."""

    def __init__(self, device: "NvmlDevice") -> None:
        self._device = device
        self._clear()

    def _clear(self) -> None:
        self._samples = 0
        self._values: "dict[str, list[Any]]" = {}  # field: [min, sum, max, last, count]
        self._reasons: "list[str]" = []

    def sample(self) -> None:
        """Read the GPU now. Raises GpuLost."""
        self.add(read_fast(self._device))

    def add(self, metrics: "dict[str, Any]") -> None:
        """Add one sample, {field: value} as in a `gpu` record."""
        self._samples += 1
        for field in FIELDS:
            value = metrics.get(field)
            if value is None:
                continue
            stats = self._values.get(field)
            if stats is None:
                self._values[field] = [value, value, value, value, 1]
                continue
            if value < stats[0]:
                stats[0] = value
            elif value > stats[2]:
                stats[2] = value
            stats[1] += value
            stats[3] = value
            stats[4] += 1
        for reason in metrics.get("clocks_event_reasons", ()):
            if reason not in self._reasons:
                self._reasons.append(reason)

    def flush(self, metrics: "dict[str, Any]") -> "dict[str, Any] | None":
        """Fields of a `gpu_digest` record since the last call, `metrics` being its last sample.

        None if there was no other sample.
        """
        if not self._samples:
            return None
        self.add(metrics)
        samples, values, reasons = self._samples, self._values, self._reasons
        self._clear()
        fields: "dict[str, Any]" = {
            field: {"min": low, "mean": round(total / float(count), 3), "max": high, "last": last}
            for field, (low, total, high, last, count) in values.items()
        }
        return dict(fields, samples=samples, clocks_event_reasons=reasons)
