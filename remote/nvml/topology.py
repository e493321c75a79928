"""What NVML knows of how GPUs are connected: NVLinks and what is at their other end, and every two GPUs.

Every call may fail by itself; an answer is then None, beside the driver's words for the reason.
"""

from .call import LOST, Asker, Lost
from .fields import Field, FieldReader
from .links import Links

#: nvml.h, nvmlGpuTopologyLevel_t, in the words of nvidia-smi. 0 is two chips of one board, behind its own bridge.
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
#: nvml.h, nvmlGpuP2PStatus_t
_P2P = ("ok", "chipset_not_supported", "gpu_not_supported", "topology_not_supported", "disabled_by_regkey",
        "not_supported", "unknown")  # fmt: skip
#: nvml.h, nvmlGpuP2PCapsIndex_t; pynvml's own name for the first of them is a tuple
_CAPS = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))
#: nvml.h, nvmlIntNvLinkDeviceType_t
_REMOTES = {0: "gpu", 1: "cpu", 2: "switch"}
_LINK_FIELDS = (("up", 165), ("version", 166), ("speed", 164))


class Gone(Exception):
    """The driver cannot reach one of the GPUs that were asked about: what it said of them before still stands."""


def ask(nvml, name, *arguments):
    """(answer, None) or (None, why there is none). Raises Gone."""
    function = getattr(nvml, name, None)
    if function is None:
        return None, "this binding has no %s" % name
    try:
        return function(*arguments), None
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in LOST:
            raise Gone(str(error))
        return None, str(error)


def pair(nvml, one, other):
    """The fields of a `link` of type peer between two GPUs' handles, and {field: why it is None}. Raises Gone."""
    found, lacking = {}, {}
    level, reason = ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    if reason is None and level not in _ANCESTORS:
        reason = "the driver says %s, which nvml.h does not know" % level
    if reason is None:
        found["ancestor"] = _ANCESTORS[level]
    else:
        lacking["ancestor"] = reason
    for field, index in _CAPS:
        status, reason = ask(nvml, "nvmlDeviceGetP2PStatus", one, other, index)
        if reason is None:
            found[field] = _P2P[status] if 0 <= status < len(_P2P) else "unknown"
        else:
            lacking[field] = reason
    return found, lacking


class Remotes(object):
    """The NVLinks of one GPU, by what is at their other end."""

    def __init__(self, nvml, handle):
        self._nvml = nvml
        self._handle = handle
        self._known = {}  # link: its other end, which a link that goes down does not tell any more

    def read(self):
        """[((kind, PCI address or ""), fields, {field: why it is None})], one for each other end. Raises Gone."""
        asker = Asker(self._nvml, self._handle)
        links = Links(asker, 0)
        try:
            links.find()
            told = [self._link(asker, number) for number in range(links.count or 0)]
        except Lost as error:
            raise Gone(str(error))
        ends = {}
        for link in told:
            ends.setdefault(link["end"], []).append(link)
        return [(end,) + _together(ends[end]) for end in sorted(ends)]

    def _link(self, asker, number):
        fields = [Field("%s.%d" % (name, number), field, number) for name, field in _LINK_FIELDS]
        values = {name.partition(".")[0]: value[0] for name, value in FieldReader(asker, fields).read().items()}
        lacking = {}
        for name, call in (("up", "nvmlDeviceGetNvLinkState"), ("version", "nvmlDeviceGetNvLinkVersion")):
            if name not in values:  # the older way
                values[name], reason = ask(self._nvml, call, self._handle, number)
                if reason is not None:
                    lacking[name] = reason
        if values.get("speed") is None:
            lacking["speed_bytes_s"] = asker.unsupported.get("speed.%d" % number, "the driver does not tell")
        end, reasons = self._end(number)
        lacking.update(reasons)
        return {"number": number, "end": end, "values": values, "lacking": lacking}

    def _end(self, number):
        kind, no_kind = ask(self._nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", self._handle, number)
        pci, no_address = ask(self._nvml, "nvmlDeviceGetNvLinkRemotePciInfo", self._handle, number)
        before = self._known.get(number, ("unknown", ""))
        kind = _REMOTES.get(kind, before[0])  # no answer, or 0xFF: the driver does not know just now
        address = before[1]
        if pci is not None:
            address = pci.busId.decode("ascii", "replace") if isinstance(pci.busId, bytes) else pci.busId
        self._known[number] = (kind, address)
        lacking = {}
        if kind == "unknown":
            lacking["b"] = no_kind or "the driver does not know what is at the other end"
        elif no_address and not address:
            lacking["b.id"] = no_address
        return (kind, address), lacking


def _together(links):
    """The links to one other end as the fields of one `link` record."""
    fields = {"links": [link["number"] for link in links], "up": [], "version": None, "speed_bytes_s": None}
    lacking = {}
    for link in links:
        lacking.update(link["lacking"])
        values = link["values"]
        if values.get("up"):
            fields["up"].append(link["number"])
        fields["version"] = fields["version"] or values.get("version") or None
        if values.get("speed"):  # a link that is down says 0; NVML says MB/s
            fields["speed_bytes_s"] = max(values["speed"] * 1e6, fields["speed_bytes_s"] or 0.0)
    for field in ("version", "speed_bytes_s"):
        if fields[field] is not None:
            lacking.pop(field, None)
    return fields, lacking
