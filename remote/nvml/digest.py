"""What the figures of one GPU did between two ticks: a spike of a tenth of a second is kept, in one record a second."""

from .metrics import quick

#: The figures that are looked at more often than once a second: cheap to ask, and quick to change.
FIELDS = ("util_pct", "mem_used_bytes", "power_w", "temp_c", "sm_clock_mhz")


class Digest(object):
    """Collects looks at one GPU until `take`."""

    def __init__(self, asker):
        self._asker = asker
        self._begin()

    def _begin(self):
        self._samples = 0
        self._values = {}  # field: [min, sum, max, last, count]
        self._reasons = []

    def look(self):
        """Ask the GPU now. Raises Lost."""
        self.add(quick(self._asker))

    def add(self, figures):
        """Take in what a look found, {field: value} as in a `gpu` record."""
        self._samples += 1
        for field in FIELDS:
            value = figures.get(field)
            if value is None:
                continue
            known = self._values.get(field)
            if known is None:
                self._values[field] = [value, value, value, value, 1]
                continue
            if value < known[0]:
                known[0] = value
            elif value > known[2]:
                known[2] = value
            known[1] += value
            known[3] = value
            known[4] += 1
        for reason in figures.get("clocks_event_reasons", ()):
            if reason not in self._reasons:
                self._reasons.append(reason)

    def take(self, figures):
        """The fields of a `gpu_digest` record since the last call, with these figures as its last look.

        None where there was no other look.
        """
        if not self._samples:
            return None
        self.add(figures)
        samples, values, reasons = self._samples, self._values, self._reasons
        self._begin()
        found = {field: {"min": low, "mean": round(total / float(count), 3), "max": high, "last": last}
                 for field, (low, total, high, last, count) in values.items()}  # fmt: skip
        return dict(found, samples=samples, clocks_event_reasons=reasons)
