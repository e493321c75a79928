"""The NVLinks of one GPU, each every ten seconds: a link too many to ask at every tick, and no counter is lost."""

from .counters import Counters
from .fields import Field, FieldReader

EVERY_S = 10.0
MOST_LINKS = 36  # nvml.h, NVML_NVLINK_MAX_LINKS of its newest version
#: (field, number in nvml.h); the scope is the link.
_FIELDS = (
    ("up", 165),
    ("version", 166),
    ("speed", 164),
    ("tx_bytes_s", 138),
    ("rx_bytes_s", 139),
    ("crc_errors", 163),
    ("replay_errors", 161),
    ("recovery_errors", 162),
)
_ERRORS = ("crc_errors", "replay_errors", "recovery_errors")


class Links(object):
    """`read` gives the `gpu_link` fields of every link when they are due; `changes` the links that went down or up."""

    def __init__(self, asker, delay_s):
        """`delay_s`: how long after the first look the links are due first, so that not all GPUs are due at once."""
        self._asker = asker
        self._delay_s = delay_s
        self._due = None
        self._count = None  # None: not known yet
        self._readers = []
        self._counters = Counters()
        self._up = {}  # link: its last state
        self._totals = {}
        self.changes = []  # (link, is up) since the last look

    @property
    def count(self):
        return self._count

    @property
    def is_pending(self):
        """Whether there are links, and none has been read yet."""
        return bool(self._count) and not self._totals

    def totals(self):
        """{field of `gpu`: sum over the links at the last look}."""
        return self._totals

    def find(self):
        """Learn how many links the GPU has. Raises Lost."""
        answer = FieldReader(self._asker, (Field("nvlinks", 91),)).read()
        if "nvlinks" in answer:
            self._count = min(MOST_LINKS, answer["nvlinks"][0])
        else:
            self._count = self._count_by_state()
            if self._count:
                self._asker.supply(("nvlinks",))

    def _count_by_state(self):
        nvml = self._asker.nvml
        for link in range(MOST_LINKS):
            try:
                nvml.nvmlDeviceGetNvLinkState(self._asker.handle, link)
            except (AttributeError, nvml.NVMLError):
                return link or None
        return MOST_LINKS

    def forget(self):
        for reader in self._readers:
            reader.forget()

    def read(self, now):
        """The fields of each link, or [] while they are not due. Raises Lost."""
        self.changes = []
        if self._due is None:
            self._due = now + self._delay_s
        if now < self._due:
            return []
        self._due = now + EVERY_S
        if not self._count:
            return []
        if len(self._readers) != self._count:
            self._readers = [self._reader(link) for link in range(self._count)]
        found = [self._one(link, reader.read(), now) for link, reader in enumerate(self._readers)]
        self._totals = {"nvlink_" + field: _sum(record.get(field) for record in found) for field in _ERRORS}
        return found

    def _reader(self, link):
        # links of one GPU are alike: what the first one cannot say is noted once, under the record's name
        return FieldReader(_OfLink(self._asker), [Field(name, number, link) for name, number in _FIELDS])

    def _one(self, link, values, now):
        record = {"link": link}
        up = bool(values["up"][0]) if "up" in values else self._state(link)
        if up is not None:
            record["up"] = up
            if self._up.get(link, up) != up:
                self.changes.append((link, up))
            self._up[link] = up
        if "version" in values:
            record["version"] = values["version"][0]
        if "speed" in values:
            record["speed_bytes_s"] = values["speed"][0] * 1e6  # NVML says MB/s
        for field in ("rx_bytes_s", "tx_bytes_s"):
            if field in values:
                rate = self._counters.rate((link, field), values[field][0], values[field][1], now, 1024)
                if rate is not None:
                    record[field] = round(rate, 1)
        grown = {}
        for field in _ERRORS:
            if field in values:
                record[field] = values[field][0]
                gained = self._counters.growth((link, field), *values[field])
                if gained:
                    grown[field] = gained
        if grown:
            record["grown"] = grown
        return record

    def _state(self, link):
        """The older call for the state of a link."""
        nvml = self._asker.nvml
        try:
            return bool(nvml.nvmlDeviceGetNvLinkState(self._asker.handle, link))
        except (AttributeError, nvml.NVMLError):
            return None


class _OfLink(object):
    """An asker that puts `gpu_link.` before the names of fields."""

    def __init__(self, asker):
        self._asker = asker
        self.nvml, self.handle = asker.nvml, asker.handle
        self._given_up = set()

    def fail(self, fields, code, text):
        self._asker.fail(["gpu_link." + field for field in fields], code, text)
        self._given_up.update(field for field in fields if self._asker.gave_up("gpu_link." + field))

    def refuse(self, fields, reason):
        self._asker.refuse(["gpu_link." + field for field in fields], reason)
        self._given_up.update(fields)

    def gave_up(self, field):
        return field in self._given_up


def _sum(values):
    known = [value for value in values if value is not None]
    return sum(known) if known else None
