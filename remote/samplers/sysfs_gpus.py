"""GPUs and accelerators of AMD, Intel, Habana and Google: from sysfs, and from what the vendor's tool reported."""

import os

from ..accelerators.devices import VENDORS, kfd_nodes
from ..accelerators.figures import Figures, info
from ..accelerators.users import file_users, kfd_users
from ..nvml.processes import RankMatcher
from ..proc.pci import PciTree
from ..proc.procfs import ProcFs, read_text
from .base import Counters, Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..accelerators.devices import SysfsGpu
    from ..accelerators.tools import Reports
    from .base import Context, Fact, Fields
    from .vendor_tools import ToolReports

INFO_S, PROCESSES_S = 60.0, 2.0


class SysfsGpuSampler(Sampler):
    """`gpu_info` on change, `gpu` each tick, `gpu_process` of AMD's compute driver and of ranks, `inventory`."""

    name = "gpu"

    def __init__(self, context: "Context", gpus: "list[SysfsGpu]", unbound: "list[SysfsGpu]") -> None:
        super(SysfsGpuSampler, self).__init__(context)
        self._gpus, self._unbound = gpus, unbound
        self._procfs = ProcFs(context.proc)
        self._figures = [(gpu, Figures(gpu, Counters())) for gpu in gpus]
        self._infos: "dict[str, Fields]" = {}
        self._processes: "dict[tuple[str, int], Fields]" = {}
        self._info_due = self._processes_due = 0.0
        self._inventory: "Fields | None" = None
        self._reported: "ToolReports | None" = None  # the last one of which the infos were sent

    def tick(self, now: float) -> "Iterator[Fact]":
        """Read every device."""
        latest: "ToolReports | None" = self.context.shared.get("gpu_tool")
        reports: "Reports" = latest.reports if latest is not None and now < latest.until else {}
        if now >= self._info_due or latest is not self._reported:
            self._info_due, self._reported = now + INFO_S, latest
            for fact in self._changed_infos(reports):
                yield fact
        for gpu, figures in self._figures:
            if os.path.isdir(gpu.folder):
                fields = figures.read(now, reports[gpu.address][1] if gpu.address in reports else {})
                yield "gpu", dict(fields, index=gpu.index, uuid=gpu.uuid)
        self.context.shared["gpu_faults"] = [
            (fields["index"], fields["unusable"]) for fields in self._infos.values() if fields.get("unusable")
        ]
        inventory = self._count()
        if inventory != self._inventory:
            self._inventory = inventory
            self.context.shared["gpu_inventory"] = dict(inventory, log=(self._gpus or self._unbound)[0].driver or "gpu")
            yield "inventory", inventory
        if now >= self._processes_due:
            self._processes_due = now + PROCESSES_S - 0.1
            for fact in self._process_changes():
                yield fact

    def _count(self) -> "Fields":
        gone = [gpu.address for gpu in self._gpus if not os.path.isdir(gpu.folder)]
        without = [gpu.address for gpu in self._unbound if not os.path.lexists(gpu.folder + "/driver")]
        fields: "Fields" = {"of": "gpu", "count": len(self._gpus) - len(gone), "missing": gone + without}
        if without and not self._gpus:
            driver = VENDORS[read_text(self._unbound[0].folder + "/vendor") or "0x1002"][1][0]
            text = "the kernel driver %s is not loaded for %s" % (driver, ", ".join(without[:8]))
            fields.update(fault="gpu_driver_not_loaded", text=text, count=None, missing=[],
                          try_="run modprobe %s; if that fails, dmesg has the reason" % driver)  # fmt: skip
        return fields

    def _changed_infos(self, reports: "Reports") -> "Iterator[Fact]":
        tree = PciTree(self.context.sys)
        listed = {node.address for node in kfd_nodes(self.context.sys)}
        for gpu in self._gpus:
            fields = info(gpu, self.context.sys, tree.locate(gpu.folder)[0] or {}, gpu.address in listed)
            reported, figures = reports.get(gpu.address, ({}, {}))
            fields = dict(reported, **fields)
            if "name" in reported and gpu.product() is None:
                fields["name"] = reported["name"]
            if gpu.driver is not None and fields["driver"] == gpu.driver and "driver" in reported:
                fields["driver"] = "%s %s" % (gpu.driver, reported["driver"])
            unknown = {name: why for name, why in fields["unsupported"].items() if fields.get(name) is None}
            fields["unsupported"] = {name: why for name, why in unknown.items() if name not in figures}
            if fields != self._infos.get(gpu.uuid):
                self._infos[gpu.uuid] = fields
                yield "gpu_info", fields

    def _process_changes(self) -> "Iterator[Fact]":
        snapshot = self.context.shared.get("processes")
        ranks = snapshot.ranks if snapshot is not None else ()
        pids = [process.pid for process in ranks]
        pids += [process.pid for process in snapshot.children] if snapshot is not None else []
        users = kfd_users(self.context.sys, self._gpus)
        users.update(file_users(self.context.proc, [gpu for gpu in self._gpus if gpu.vendor != "AMD"], pids))
        by_uuid = {gpu.uuid: gpu for gpu in self._gpus}
        present: "dict[tuple[str, int], Fields]" = {}
        for (uuid, pid), used in users.items():
            gpu = by_uuid[uuid]
            ticks, comm, rank, source = RankMatcher(ranks, self._procfs, gpu.index, gpu.uuid).match(pid)
            present[uuid, pid] = {
                "index": gpu.index, "uuid": uuid, "pid": pid, "type": "compute", "mem_used_bytes": used,
                "start_ticks": ticks, "comm": comm, "rank_source": source, "job": rank.job if rank else None,
                "attempt": rank.attempt if rank else None, "rank": rank.rank if rank else None,
            }  # fmt: skip
        for key in [key for key in self._processes if key not in present]:
            yield "gpu_process", dict(self._processes.pop(key), gone=True)
        for key, fields in present.items():
            if self._processes.get(key) != fields:
                self._processes[key] = fields
                yield "gpu_process", fields
