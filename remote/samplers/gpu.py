"""GPUs through NVML: who they are, their figures at every tick, what happens to them and who uses them.

The module that answers is a parameter: None for pynvml, or what looks like it (`simulate.SimulatedNvml`).
"""

from ..nvml import info, init
from ..nvml.call import GpuLost, NvmlDevice
from ..nvml.digest import MetricDigest
from ..nvml.events import ThrottleWatch, XidEvents, XidListener, throttle_event
from ..nvml.gpm import GpmReader
from ..nvml.kernel_log import KernelLog
from ..nvml.links import REFRESH_S as LINKS_REFRESH_S
from ..nvml.links import NvLinks
from ..nvml.metrics import GpuMetrics
from ..nvml.pcie_thread import PcieThread
from ..nvml.processes import GpuProcesses
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from .base import Context, Fact, Fields
    from .process_snapshot import RankRef

#: Who a GPU is, and what it supports, is asked again this often: limits and modes change, rarely.
REFRESH_S = 60.0
#: nvml.h, nvmlReturn_t: nothing is at that place (not found; not supported where MIG is off; an invalid argument).
_NOT_THERE = (2, 3, 6)
#: Everything is asked at most this often.
FULL_S = 1.0
#: A GPU that is lost is asked this often whether it is back (somebody may have reset it).
RETRY_S = 10.0


class Device(object):
    """One GPU, or one MIG device, and everything that is asked of it."""

    def __init__(
        self,
        sampler: "GpuSampler",
        index: int,
        uuid: str,
        handle: "Any",
        parent: "Device | None" = None,
        mig_index: "int | None" = None,
    ) -> None:
        nvml, context = sampler.nvml, sampler.context
        self.index, self.uuid, self.handle = index, uuid, handle
        self.parent = parent  # the Device it is a part of
        self.mig_index = mig_index
        self.nvml_device = NvmlDevice(nvml, handle)
        self.links = NvLinks(self.nvml_device, index % LINKS_REFRESH_S)  # not all GPUs at one tick
        self.gpm = GpmReader(self.nvml_device)
        self.metrics = GpuMetrics(self.nvml_device, uuid, self.gpm, self.links, sampler.pcie)
        self.processes = GpuProcesses(self.nvml_device, index, uuid, context.proc)
        self.throttling = ThrottleWatch()
        self.digest = MetricDigest(self.nvml_device)
        self.is_split = False  # into MIG devices: the processes are theirs
        self.recovery: str | None = None
        self.event_reason: str | None = None  # why its XIDs do not come from the driver
        self.lost: str | None = None  # the driver's words
        self.refresh_at = self.retry_at = 0.0
        self.identity: Fields = {}
        self.last_info: Fields | None = None  # the fields of the last record

    @property
    def name(self) -> "Fields":
        """The fields that identify the GPU."""
        return {"index": self.index, "uuid": self.uuid}

    def introduce(self, sampler: "GpuSampler") -> None:
        """Ask who this is. Raises GpuLost."""
        if self.parent is not None:
            identity = info.describe_mig(self.nvml_device)
            self.gpm.use_instance(self.parent.nvml_device, identity.get("gpu_instance"))
        else:
            identity = info.describe(self.nvml_device, sampler.context.sys)
            if self.links.count is None:
                self.links.discover()
            if self.links.count is not None:
                identity["nvlinks"] = self.links.count
        self.identity = identity

    def forget(self) -> None:
        """Ask everything anew, also what was not supported."""
        self.nvml_device.reset()
        self.metrics.reset()
        self.links.reset()


class GpuSampler(Sampler):
    """`gpu_info` once and on change, `gpu` at each tick, `gpu_link` each 10 s, `gpu_process` and `gpu_event`.

    Where ticks come faster than one a second, those between are for a few quick figures, which one `gpu_digest` a
    second sums up; everything else is asked and said once a second.
    """

    name = "gpu"
    finest_s = 0.0

    def __init__(self, context: "Context", nvml: "Any" = None) -> None:
        super(GpuSampler, self).__init__(context)
        self.nvml = nvml
        self.simulated = bool(getattr(nvml, "simulated", False))
        self.pcie: PcieThread = None  # type: ignore[assignment]  # made by start(), as those below
        self._devices: list[Device] = []
        self._versions: Fields = {}  # of driver and CUDA
        self._no_versions: dict[str, str] = {}  # field: why it is unknown
        self._xid_watch: XidListener = None  # type: ignore[assignment]
        self._xids: XidEvents = None  # type: ignore[assignment]
        self._kernel_log: KernelLog = None  # type: ignore[assignment]
        self._events: list[Fields] = []  # from before the first tick
        self._full_at = 0.0  # not before that everything is asked

    def start(self) -> None:
        """Load NVML and find the GPUs. Raises Unavailable."""
        if self.nvml is None:
            self.nvml = self.context.import_nvml()
        init.initialise(self.nvml)
        total = init.device_count(self.nvml)
        self.pcie = PcieThread(self.nvml)
        self._versions, self._no_versions = info.versions(self.nvml)
        for index in range(total):
            self._find(index)
        self._watch_events()

    def stop(self) -> None:
        """Stop the threads and release NVML."""
        self.pcie.stop()
        self._xid_watch.stop()
        self._kernel_log.close()
        for device in self._devices:
            device.gpm.close()
        try:
            self.nvml.nvmlShutdown()
        except self.nvml.NVMLError:
            pass  # the driver has gone first

    def tick(self, now: float) -> "Iterator[Fact]":
        """Records of all GPUs; between two full seconds only digest values."""
        interval_s = self.context.interval_s
        if interval_s < FULL_S and now < self._full_at:
            self._look_quickly()
            return
        self._full_at = now + FULL_S - interval_s / 2.0  # ticks are on a grid, and come a little late
        for event in self._events:
            yield "gpu_event", event
        self._events = []
        seen = self.context.shared.get("processes")
        ranks = seen.ranks if seen is not None else ()
        facts = []
        position = 0
        while position < len(self._devices):  # a look at a GPU may put its MIG devices behind it, or take them away
            facts.extend(self._look(self._devices[position], now, ranks))
            position += 1
        facts.sort(key=_introductions_first)
        for fact in facts:
            yield fact
        for event in self._xids.fold(now, self._kernel_log.xids(), self._xid_watch.drain()):
            yield "gpu_event", event

    def _look_quickly(self) -> None:
        """Add to the digests."""
        for device in self._devices:
            if device.lost is None:
                try:
                    device.digest.sample()
                except GpuLost:
                    pass  # the next full look says so

    # -- which GPUs there are ------------------------------------------------------------------------------------------

    def _find(self, index: int) -> None:
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            text = "the driver lists GPU %d and cannot open it: %s" % (index, error)
            self._events.append({"index": index, "event": "lost", "severity": "error", "text": text, "try_": _LOST_TRY})
            return
        device = Device(self, index, uuid, handle)
        self._devices.append(device)

    def _split(self, device: "Device") -> "list[Device]":
        """The MIG devices of a GPU as devices of their own, in the place after it.

        Where the driver does not say just now, those of before have not gone.
        """
        before = {part.mig_index or 0: part for part in self._devices if part.parent is device}
        mode = device.identity.get("mig_mode")
        if mode is None:
            parts = list(before.values())
        else:
            count = device.nvml_device.call(("mig_devices",), "nvmlDeviceGetMaxMigDeviceCount") if mode else 0
            places = range(count) if count is not None else sorted(before)
            parts = [part for part in (self._part(device, number, before) for number in places) if part is not None]
        device.is_split = bool(parts)
        if device.parent is None and (parts or before):
            others = [other for other in self._devices if other.parent is not device]
            position = others.index(device) + 1
            self._devices = others[:position] + parts + others[position:]
        return parts

    def _part(self, device: "Device", number: int, known_parts: "dict[int, Device]") -> "Device | None":
        """The MIG device at a place; None where there is none: places are numbered, and not all are taken."""
        nvml, before = self.nvml, known_parts.get(number)
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, number)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            return None if getattr(error, "value", None) in _NOT_THERE else before
        if before is not None and before.uuid == uuid:
            return before
        return Device(self, device.index, uuid, handle, device, number)

    def _watch_events(self) -> None:
        whole = [(device.uuid, device.handle) for device in self._devices]
        self._xid_watch = XidListener(self.nvml)
        refused = {} if self.simulated else self._xid_watch.start(whole)
        self._kernel_log = KernelLog(self.context.kmsg if not self.simulated else "")
        places = []
        for device in self._devices:
            bus_id = None
            try:
                bus_id = info.bus_id(device.nvml_device)
            except GpuLost:
                pass  # the first look at it says so
            places.append((device.index, device.uuid, bus_id))
            device.event_reason = refused.get(device.uuid)
        self._xids = XidEvents(places)

    # -- one GPU -------------------------------------------------------------------------------------------------------

    def _look(self, device: "Device", now: float, ranks: "tuple[RankRef, ...]") -> "list[Fact]":
        """The facts of one GPU at one tick. One that is lost stops no other."""
        if device.lost is not None and not self._is_back(device, now):
            return []
        facts: list[Fact] = []
        try:
            if now >= device.refresh_at:
                facts.extend(self._refresh(device, now))
            for link in device.links.read(now):
                facts.append(("gpu_link", dict(device.name, **link)))
            figures = device.metrics.read(now)
            facts.append(("gpu", dict(device.name, simulated=self.simulated, **figures)))
            digest = device.digest.flush(figures)
            if digest is not None:
                facts.append(("gpu_digest", dict(device.name, simulated=self.simulated, **digest)))
            facts.extend(("gpu_event", dict(device.name, **event)) for event in self._events_of(device, now, figures))
            if not device.is_split:
                facts.extend(("gpu_process", fields) for fields in device.processes.read(now, ranks))
        except GpuLost as error:
            return facts + self._lose(device, now, str(error))
        return self._say(device) + facts

    def _refresh(self, device: "Device", now: float) -> "list[Fact]":
        if device.last_info is not None:
            device.forget()
        device.refresh_at = now + REFRESH_S + device.index
        device.introduce(self)
        if device.parent is not None:
            return []
        before = [part for part in self._devices if part.parent is device]
        device.identity["mig_devices"] = [part.uuid for part in self._split(device)]
        facts: list[Fact] = []
        for gone in before:
            if gone not in self._devices:
                facts.extend(("gpu_process", fields) for fields in gone.processes.clear())
                facts.append(("gpu_info", dict(gone.last_info or gone.name, lost="this MIG device was removed")))
        return facts

    def _say(self, device: "Device") -> "list[Fact]":
        """`gpu_info`, where it differs from the last one."""
        identity = device.identity
        unsupported = {
            field: reason for field, reason in device.nvml_device.unsupported.items() if field not in identity
        }
        unsupported.update(self._no_versions)
        if device.event_reason or self._xid_watch.failure:
            unsupported["gpu_event.xid"] = device.event_reason or self._xid_watch.failure or ""
        if self._kernel_log.reason:
            unsupported["gpu_event.kernel"] = self._kernel_log.reason
        fields = dict(device.name, simulated=self.simulated, unsupported=unsupported, **device.identity)
        fields.update(self._versions)
        if device.parent is not None:
            fields.update(parent=device.parent.uuid, mig_index=device.mig_index)
        if fields == device.last_info:
            return []
        device.last_info = fields
        return [("gpu_info", fields)]

    def _events_of(self, device: "Device", now: float, figures: "Fields") -> "Iterator[Fields]":
        for change in device.throttling.update(now, figures.get("clocks_event_reasons", ())):
            yield throttle_event(*change)
        for link, up in device.links.changes:
            word = "up again" if up else "down"
            yield {"event": "link_up" if up else "link_down", "severity": "info" if up else "error", "link": link,
                   "text": "NVLink %d of GPU %d is %s" % (link, device.index, word),
                   "try_": "" if up else "nvidia-smi nvlink -s shows all links; dmesg says more"}  # fmt: skip
        action = figures.get("recovery_action")
        if action is not None and action != device.recovery:
            if action != "none":
                yield {"event": "recovery_action", "severity": "error", "try_": "drain the node, then do as it says",
                       "text": "the driver wants this to recover GPU %d: %s" % (device.index, action)}  # fmt: skip
            device.recovery = action

    def _lose(self, device: "Device", now: float, reason: str) -> "list[Fact]":
        device.lost = reason
        device.retry_at = now + RETRY_S
        self.pcie.remove(device.uuid)
        text = "the driver cannot reach GPU %d any more: %s" % (device.index, reason)
        device.last_info = dict(device.last_info or dict(device.name, **self._versions), lost=reason)
        facts: list[Fact] = [("gpu_info", device.last_info)]
        facts.extend(("gpu_process", fields) for fields in device.processes.clear())
        event = {"event": "lost", "severity": "error", "text": text, "try_": _LOST_TRY}
        return facts + [("gpu_event", dict(device.name, **event))]

    def _is_back(self, device: "Device", now: float) -> bool:
        if now < device.retry_at:
            return False
        device.retry_at = now + RETRY_S
        try:
            self.nvml.nvmlDeviceGetUUID(device.handle)
        except self.nvml.NVMLError:
            return False
        device.lost, device.last_info = None, None
        device.refresh_at = now
        device.forget()
        text = "the driver reaches GPU %d again" % device.index
        self._events.append(dict(device.name, event="back", severity="info", text=text))
        return True


def _introductions_first(fact: "Fact") -> bool:
    return fact[0] != "gpu_info"


_LOST_TRY = "drain the node and reboot it; if the GPU stays away, it or its slot needs service"
