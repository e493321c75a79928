"""GPUs through NVML: identity, metrics at every tick, events and processes.

The NVML binding is a parameter: None for pynvml, or `simulate.SimulatedNvml`.
"""

from ..kernel.log import KernelLog
from ..nvml import call, info, inventory
from ..nvml.call import GpuLost, NvmlDevice, PcieThread
from ..nvml.events import ThrottleWatch, XidEvents, XidListener, throttle_event, xids_in
from ..nvml.gpm import GpmReader
from ..nvml.links import REFRESH_S as LINKS_REFRESH_S
from ..nvml.links import NvLinks
from ..nvml.metrics import GpuMetrics, MetricDigest
from ..nvml.processes import GpuProcesses
from ..proc.pci import kernel_address
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from .base import Context, Fact, Fields
    from .process_snapshot import RankRef

#: Seconds between two reads of identity and capabilities: limits and modes may change.
REFRESH_S = 60.0
#: Seconds after it until every field has been read again, also those of links.
SETTLED_S = LINKS_REFRESH_S + 2.0
#: Seconds between two reads of modes and limits, and of the PCIe generation, of which three tell a slow link
#: from one that saves power.
CHANGEABLE_S, PCIE_S = 5.0, 2.0
#: Seconds between two counts of the GPUs that the kernel lists.
INVENTORY_S = 10.0
#: nvml.h, nvmlReturn_t: no device (invalid argument; not supported, MIG is off; not found).
_NOT_THERE = (2, 3, 6)
#: Seconds. Minimum interval of a full read.
FULL_S = 1.0
#: Seconds between two attempts to reach a lost GPU, which may have been reset.
RETRY_S = 5.0


class Device(object):
    """One GPU or MIG device with its readers."""

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
        self.parent = parent  # the GPU of a MIG device
        self.mig_index = mig_index
        self.nvml_device = NvmlDevice(nvml, handle)
        self.links = NvLinks(self.nvml_device, index % LINKS_REFRESH_S)  # spread over the ticks
        self.gpm = GpmReader(self.nvml_device)
        self.metrics = GpuMetrics(self.nvml_device, uuid, self.gpm, self.links, sampler.pcie, sampler.driver)
        self.processes = GpuProcesses(self.nvml_device, index, uuid, context.proc)
        self.throttling = ThrottleWatch()
        self.digest = MetricDigest(self.nvml_device)
        self.is_split = False  # into MIG devices, which have the processes
        self.recovery: str | None = None
        self.address: str | None = None  # in the kernel's notation
        self.event_reason: str | None = None  # why the driver sends no XIDs of it
        self.lost: str | None = None  # the driver's error
        self.refresh_due = self.retry_due = self.changeable_due = self.pcie_due = self.settled_due = 0.0
        self.identity: Fields = {}
        self.last_info: Fields | None = None  # the fields of the last record
        self.info_basis: tuple[Fields, tuple[Any, ...]] = ({}, ())  # identity and states of which those were made

    @property
    def name(self) -> "Fields":
        """The fields that identify the GPU."""
        return {"index": self.index, "uuid": self.uuid}

    def identify(self, sampler: "GpuSampler") -> None:
        """Read the identity. Raises GpuLost."""
        if self.parent is not None:
            identity = info.describe_mig(self.nvml_device)
            self.gpm.use_instance(self.parent.nvml_device, identity.get("gpu_instance"))
        else:
            identity = info.describe(self.nvml_device, sampler.context.sys)
            if self.links.count is None:
                self.links.discover(identity.get("compute_capability"))
            if self.links.count is not None:
                identity["nvlinks"] = self.links.count
        self.identity = identity

    def update(self, fields: "Fields") -> None:
        """Replace fields of the identity, if they have changed; None: unknown."""
        if any(self.identity.get(field) != value for field, value in fields.items()):
            identity = dict(self.identity, **fields)
            self.identity = {field: value for field, value in identity.items() if value is not None}

    def reset(self) -> None:
        """Drop all cached state, also which fields are unsupported."""
        self.nvml_device.reset()
        self.metrics.reset()
        self.links.reset()


class GpuSampler(Sampler):
    """`gpu_info` once and on change, `gpu` at each tick, `gpu_link` every 10 s, `gpu_process` and `gpu_event`.

    At intervals below 1 s, the ticks between two full reads sample a few fast metrics, which one `gpu_digest` per
    second summarises; everything else is read once a second.
    """

    name = "gpu"
    finest_s = 0.0

    def __init__(self, context: "Context", nvml: "Any" = None) -> None:
        super(GpuSampler, self).__init__(context)
        self.nvml = nvml
        self.simulated = bool(getattr(nvml, "simulated", False))
        self.pcie: PcieThread = None  # type: ignore[assignment]  # set by start(), as those below
        self._devices: list[Device] = []
        self._versions: Fields = {}  # of driver and CUDA
        self._no_versions: dict[str, str] = {}  # field: why it is unknown
        self._xid_watch: XidListener = None  # type: ignore[assignment]
        self._xids: XidEvents = None  # type: ignore[assignment]
        self._kernel_log: KernelLog = None  # type: ignore[assignment]
        self._inventory_due = self._reopen_due = 0.0
        self._unopened: list[int] = []  # indices of GPUs that the driver lists and cannot open
        self._events: list[Fields] = []  # from before the first tick
        self._inventory: Fields = {}  # the fields of its last record
        self._full_due = 0.0  # time.monotonic() of the next full read
        self._reads = 0  # full reads so far

    def start(self) -> None:
        """Load NVML and find the GPUs. Raises Unavailable."""
        if self.nvml is None:
            self.nvml = self.context.import_nvml()
        call.initialise(self.nvml)
        try:
            total = call.device_count(self.nvml)
        except Unavailable:
            self.nvml.nvmlShutdown()
            raise
        self.pcie = PcieThread(self.nvml)
        self._versions, self._no_versions = info.versions(self.nvml)
        self._devices = [device for device in map(self._find, range(total)) if device is not None]
        self._xid_watch, self._xids = XidListener(self.nvml), XidEvents(())
        self._kernel_log = KernelLog(self.context.kmsg if not self.simulated else "")
        self.context.shared["xids"] = self._kernel_log.reason is None  # the kernel log sampler leaves them to this one
        self._watch_events(self._devices)

    @property
    def driver(self) -> "str | None":
        """Version of the driver; None if unknown."""
        return self._versions.get("driver")

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
        if interval_s < FULL_S and now < self._full_due:
            self._sample_digests()
            return
        self._full_due = now + FULL_S - interval_s / 2.0  # ticks are on a grid and slightly late
        if self._unopened and now >= self._reopen_due:
            self._reopen(now)
        if now >= self._inventory_due:
            self._inventory_due = now + INVENTORY_S
            fields = self._count()
            if fields != self._inventory:
                self._inventory = self.context.shared["gpu_inventory"] = fields
                yield "inventory", fields
        for event in self._events:
            yield "gpu_event", event
        self._events = []
        snapshot = self.context.shared.get("processes")
        ranks = snapshot.ranks if snapshot is not None else ()
        facts = []
        position = 0
        while position < len(self._devices):  # reading a GPU may add or remove its MIG devices
            facts.extend(self._read(self._devices[position], now, ranks))
            position += 1
        self._reads += 1
        if self._reads > 1:  # the first that fails proves nothing: `NvmlDevice.unusable`
            self.context.shared["gpu_faults"] = [fault for fault in map(_fault, self._devices) if fault is not None]
        facts.sort(key=_info_first)
        for fact in facts:
            yield fact
        for event in self._xids.fold(now, xids_in(self._kernel_log.messages()), self._xid_watch.poll()):
            yield "gpu_event", event

    def _sample_digests(self) -> None:
        """Add to the digests."""
        for device in self._devices:
            if device.lost is None:
                try:
                    device.digest.sample()
                except GpuLost:
                    pass  # the next full read reports it

    # -- which GPUs there are ------------------------------------------------------------------------------------------

    def _find(self, index: int) -> "Device | None":
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            if index not in self._unopened:
                self._unopened.append(index)
                text = "the driver lists GPU %d but cannot open it: %s" % (index, error)
                event = {"index": index, "event": "lost", "severity": "error", "text": text, "try_": _LOST_TRY}
                self._events.append(event)
            return None
        return Device(self, index, uuid, handle)

    def _reopen(self, now: float) -> None:
        """Try again to open the GPUs that could not be opened, which may have been reset."""
        self._reopen_due = now + RETRY_S
        opened = [device for device in map(self._find, tuple(self._unopened)) if device is not None]
        for device in opened:
            self._unopened.remove(device.index)
            self._events.append(_back(device))
        if opened:
            self._devices = sorted(self._devices + opened, key=_index)  # MIG devices stay behind their GPU
            self._watch_events(opened)
            self._inventory_due = now

    def _count(self) -> "Fields":
        """`inventory` fields: the GPUs that have records, and those that the kernel lists beyond them."""
        gpus = [device for device in self._devices if device.parent is None]
        fields: Fields = {"of": "gpu", "count": len(gpus)}
        if not self.simulated:
            present = {device.address for device in gpus}
            fields["installed"], missing = inventory.missing_gpus(self.context, present)
            # one that cannot be opened counts where sysfs does not list it, too
            fields["missing"] = missing + ["index %d" % index for index in sorted(self._unopened)[len(missing) :]]
        return fields

    def absence(self, error: "Unavailable") -> "list[Fact]":
        """Why the GPUs cannot be read, or that there are none."""
        return [("inventory", inventory.absence(self.context, error))]

    def _split(self, device: "Device") -> "list[Device]":
        """Insert the MIG devices of a GPU after it, and return them.

        If the driver returns no MIG mode, the previous devices are kept.
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

    def _part(self, device: "Device", number: int, previous: "dict[int, Device]") -> "Device | None":
        """The MIG device with this index; None if the index is unused."""
        nvml, before = self.nvml, previous.get(number)
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, number)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            return None if getattr(error, "value", None) in _NOT_THERE else before
        if before is not None and before.uuid == uuid:
            return before
        return Device(self, device.index, uuid, handle, device, number)

    def _watch_events(self, devices: "list[Device]") -> None:
        whole = [(device.uuid, device.handle) for device in devices]
        refused = {} if self.simulated else self._xid_watch.start(whole)
        places = []
        for device in devices:
            bus_id = None
            try:
                bus_id = info.bus_id(device.nvml_device)
            except GpuLost:
                pass  # the first read reports it
            device.address = kernel_address(bus_id) if bus_id else None
            places.append((device.index, device.uuid, bus_id))
            device.event_reason = refused.get(device.uuid)
        self._xids.add(places)

    # -- one GPU -------------------------------------------------------------------------------------------------------

    def _read(self, device: "Device", now: float, ranks: "tuple[RankRef, ...]") -> "list[Fact]":
        """The records of one GPU at one tick; a lost GPU does not affect the others."""
        if device.lost is not None and not self._is_back(device, now):
            return []
        facts: list[Fact] = []
        try:
            if now >= device.refresh_due:
                facts.extend(self._refresh(device, now))
            elif now >= device.changeable_due and device.parent is None:
                device.changeable_due = now + CHANGEABLE_S
                device.update(info.changeable(device.nvml_device))
                if now >= device.settled_due:
                    device.nvml_device.drop_unconfirmed()
                device.info_basis = ({}, ())  # the reasons of fields without a value may have changed
            elif now >= device.pcie_due and device.parent is None:
                device.pcie_due = now + PCIE_S - 0.1  # ticks are on a grid and slightly late
                device.update(info.pcie_generation(device.nvml_device))
            for link in device.links.read(now):
                facts.append(("gpu_link", dict(device.name, **link)))
            device.nvml_device.begin_tick()
            metrics = device.metrics.read(now)
            facts.append(("gpu", dict(device.name, simulated=self.simulated, **metrics)))
            digest = device.digest.flush(metrics)
            if digest is not None:
                facts.append(("gpu_digest", dict(device.name, simulated=self.simulated, **digest)))
            facts.extend(("gpu_event", dict(device.name, **event)) for event in self._events_of(device, now, metrics))
            if not device.is_split:
                facts.extend(("gpu_process", fields) for fields in device.processes.read(now, ranks))
        except GpuLost as error:
            return facts + self._lose(device, now, str(error))
        return self._info_if_changed(device) + facts

    def _refresh(self, device: "Device", now: float) -> "list[Fact]":
        if device.last_info is not None:
            device.reset()
        device.refresh_due, device.settled_due = now + REFRESH_S + device.index, now + SETTLED_S
        device.changeable_due = now + 1.0 + device.index % CHANGEABLE_S  # spread over the ticks
        device.identify(self)
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

    def _info_if_changed(self, device: "Device") -> "list[Fact]":
        """`gpu_info`, if it differs from the last one."""
        identity, state = device.identity, device.nvml_device
        states = (len(state.unsupported), state.unusable, self._xid_watch.failure, self._kernel_log.reason)
        if device.last_info is not None and device.info_basis[0] is identity and device.info_basis[1] == states:
            return []  # made anew only then: it costs as much as three calls
        device.info_basis = (identity, states)
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
        if device.nvml_device.unusable:
            fields["unusable"] = device.nvml_device.unusable
        if device.parent is not None:
            fields.update(parent=device.parent.uuid, mig_index=device.mig_index)
        if fields == device.last_info:
            return []
        device.last_info = fields
        return [("gpu_info", fields)]

    def _events_of(self, device: "Device", now: float, metrics: "Fields") -> "Iterator[Fields]":
        for change in device.throttling.update(now, metrics.get("clocks_event_reasons", ())):
            yield throttle_event(*change)
        for link, up in device.links.changes:
            word = "up again" if up else "down"
            yield {"event": "link_up" if up else "link_down", "severity": "info" if up else "error", "link": link,
                   "text": "NVLink %d of GPU %d is %s" % (link, device.index, word),
                   "try_": "" if up else "nvidia-smi nvlink -s shows all links; see also dmesg"}  # fmt: skip
        action = metrics.get("recovery_action")
        if action is not None and action != device.recovery:
            if action != "none":
                words = action.replace("_", " ")
                yield {
                    "event": "recovery_action",
                    "severity": "error",
                    "text": "the driver requires a recovery action for GPU %d: %s" % (device.index, words),
                    "try_": _REMEDIES.get(action, "drain the node; then: " + words).replace("INDEX", str(device.index)),
                }
            device.recovery = action

    def _lose(self, device: "Device", now: float, reason: str) -> "list[Fact]":
        device.lost = reason
        device.retry_due = now + RETRY_S
        self.pcie.remove(device.uuid)
        text = "the driver cannot reach GPU %d: %s" % (device.index, reason)
        device.last_info = dict(device.last_info or dict(device.name, **self._versions), lost=reason)
        facts: list[Fact] = [("gpu_info", device.last_info)]
        facts.extend(("gpu_process", fields) for fields in device.processes.clear())
        event = {"event": "lost", "severity": "error", "text": text, "try_": _LOST_TRY}
        return facts + [("gpu_event", dict(device.name, **event))]

    def _is_back(self, device: "Device", now: float) -> bool:
        if now < device.retry_due:
            return False
        device.retry_due = now + RETRY_S
        try:
            self.nvml.nvmlDeviceGetUUID(device.handle)
        except self.nvml.NVMLError:
            return False
        device.lost, device.last_info = None, None
        device.refresh_due = now
        device.reset()
        self._events.append(_back(device))
        return True


def _back(device: "Device") -> "Fields":
    return dict(device.name, event="back", severity="info", text="the driver reaches GPU %d again" % device.index)


def _fault(device: "Device") -> "tuple[int, str] | None":
    """Index of a GPU and why it cannot be used; None if it can."""
    if device.parent is not None:
        return None
    lost = "the driver cannot reach it: %s" % device.lost if device.lost is not None else None
    reason = lost or device.nvml_device.unusable
    return (device.index, reason) if reason is not None else None


def _index(device: "Device") -> int:
    return device.index


def _info_first(fact: "Fact") -> bool:
    return fact[0] != "gpu_info"


#: Remedies of the driver's recovery actions; INDEX is the number of the GPU.
_REMEDIES = {
    "gpu_reset": "end the programs on this GPU, then reset it: nvidia-smi --gpu-reset -i INDEX",
    "drain_and_reset": "drain the node, then reset the GPU: nvidia-smi --gpu-reset -i INDEX",
    "node_reboot": "drain the node, then reboot it",
    "system_reboot": "drain the node, then reboot it",
}
_LOST_TRY = "drain the node and reboot it; if the GPU is still missing, it or its slot needs service"
