"""Facts of one node for its checks, and the result of one check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ...records import Capacity, ClockSource, Finding, Gpu, GpuInfo, Host, Inventory, Log, Nic, Node, RankSetting
from ..finding import FINDINGS

#: pass: within its limit. fail: beyond it. unknown: the node did not report what the check needs. absent: the node
#: has no such device.
CheckState = Literal["pass", "fail", "unknown", "absent"]
Owner = Literal["user", "operator", "vendor"]
#: What a check needs; without it the result is unknown or absent.
Need = Literal["node", "peers", "driver", "gpu", "nvlink", "nic"]


#: (name, subject) of a setting.
SettingKey = tuple[str, str]


class Usual(msgspec.Struct, frozen=True):
    """A value that most of a class of nodes, or most ranks of a job, share."""

    value: str
    count: int  # of them
    nodes: int  # nodes of the class, or ranks of the job


#: By the name of a limit or variable.
JobUsual = Mapping[str, Usual]


class Absent(msgspec.Struct, frozen=True):
    """Why a check does not apply to a node."""

    reason: str


class NodeFacts(msgspec.Struct, frozen=True):
    """Newest records of one node, and the open findings about it and its devices."""

    node: str
    about: Node | None = None
    host: Host | None = None
    gpus: Sequence[tuple[GpuInfo, Gpu | None]] = ()  # without MIG devices
    nics: Sequence[Nic] = ()
    inventory: Mapping[str, Inventory] = msgspec.field(default_factory=dict)  # by kind of device
    occupied: frozenset[str] = frozenset()  # uuids of GPUs with a process on them or on one of their MIG devices
    findings: Sequence[Finding] = ()
    watched_s: float = 0.0  # since the first record of its agent
    nodes: int = 1  # that are watched, with this one
    settings: Mapping[SettingKey, str] = msgspec.field(default_factory=dict)
    usual: Mapping[SettingKey, Usual] = msgspec.field(default_factory=dict)  # of the node's class
    capacities: Sequence[Capacity] = ()
    rank_settings: Sequence[RankSetting] = ()  # of ranks on this node
    usual_of_jobs: Mapping[str, JobUsual] = msgspec.field(default_factory=dict)  # by job and attempt, of all nodes
    privileged: frozenset[tuple[int, int]] = frozenset()  # processes of root, whose memory locks have no limit
    gpu_of: Mapping[int, str] = msgspec.field(default_factory=dict)  # uuid of the GPU that a process is on
    left_over: Mapping[str, str] = msgspec.field(default_factory=dict)  # process of an ended job: its GPUs
    clock: ClockSource | None = None
    faults: Sequence[Log] = ()  # in the kernel log of the node, the newest last

    def lacks(self, name: str) -> str | None:
        """Why the node has no such source; None if it has."""
        missing = self.about.missing if self.about is not None else ()
        return next((entry.text for entry in missing if entry.name == name), None)

    def setting(self, name: str, subject: str = "") -> str | None:
        """The value of a setting; None if it was not reported."""
        return self.settings.get((name, subject))

    def settings_of(self, name: str) -> dict[str, str]:
        """The values of a setting by what they belong to."""
        return {subject: value for (other, subject), value in self.settings.items() if other == name}


class CheckResult(msgspec.Struct, frozen=True):
    """One check on one node."""

    id: str
    state: CheckState
    severity: Literal["error", "warning", "info"]  # of a failure
    text: str = ""  # the measured values of a failure, or why the result is unknown
    remedy: str = ""  # of a failure


#: Words about what is beyond the limit, one for each device; None where nothing is known.
Measured = Sequence[str] | None


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: either the findings that fail it, or a measurement of its own."""

    id: str
    what: str  # what is checked, a clause
    source: str  # where the value comes from
    limit: str  # what passes
    severity: Literal["error", "warning", "info"]  # info: shown, and never a reason to fail
    owner: Owner  # who acts
    needs: Need = "node"
    fields: tuple[str, ...] = ()  # of GPUs, of which at least one must be reported
    missing: str = ""  # name under which an agent reports that it cannot read the source
    watch_s: float = 0.0  # time that the node must have been watched for
    findings: tuple[str, ...] = ()  # ids
    measure: Callable[[NodeFacts], Measured | Absent] | None = None
    own_remedy: str = ""  # where no finding has one

    @property
    def remedy(self) -> str:
        """What to do, in the words of the catalogue of findings."""
        return self.own_remedy or " ".join(_REMEDIES[id] for id in self.findings)

    def run(self, facts: NodeFacts) -> CheckResult:
        """The result on one node."""
        measured = self.measure(facts) if self.measure is not None and facts.about is not None else None
        hindrance = self._hindrance(facts)
        if isinstance(measured, Absent) and (hindrance is None or self.needs == "node"):
            return CheckResult(self.id, "absent", self.severity, measured.reason)
        if hindrance is not None:
            state, text = hindrance
            return CheckResult(self.id, state, self.severity, text)
        if self.measure is not None:
            if measured is None or isinstance(measured, Absent):
                return CheckResult(self.id, "unknown", self.severity, "not reported by the node")
            if measured:
                return CheckResult(self.id, "fail", self.severity, "; ".join(measured), self.remedy)
            return CheckResult(self.id, "pass", self.severity)
        open_ones = [finding for finding in facts.findings if finding.id in self.findings]
        if not open_ones:
            return CheckResult(self.id, "pass", self.severity)
        is_error = any(finding.severity == "error" for finding in open_ones)
        remedies = dict.fromkeys(_REMEDIES[finding.id] for finding in open_ones)
        severity: Literal["error", "warning"] = "error" if is_error else "warning"
        text = "; ".join(finding.text.removeprefix(f"{facts.node}: ") for finding in open_ones)
        return CheckResult(self.id, "fail", severity, text, " ".join(remedies))

    def _hindrance(self, facts: NodeFacts) -> tuple[CheckState, str] | None:
        """Why the check cannot be evaluated."""
        hindrance = _hindrance(self.needs, facts)
        if hindrance is not None:
            return hindrance
        reason = facts.lacks(self.missing) if self.missing else None
        if reason is not None:
            return "unknown", reason
        if self.fields and not any(getattr(record, field, None) is not None
                                   for gpu in facts.gpus for record in gpu for field in self.fields):  # fmt: skip
            return "unknown", "the driver does not report it"
        has_failed = any(finding.id in self.findings for finding in facts.findings)
        if facts.watched_s < self.watch_s and not has_failed:
            return "unknown", f"needs --for {self.watch_s:.0f}s"
        return None


_REMEDIES: Final = {kind.id: kind.remedy for kind in FINDINGS}


def _hindrance(needs: Need, facts: NodeFacts) -> tuple[CheckState, str] | None:
    """Why a check cannot be evaluated."""
    if facts.about is None:
        return "unknown", "the node has not reported"
    if needs == "peers" and facts.nodes < 2:
        return "absent", "no other node to compare with"
    if needs == "driver":
        return _no_driver(facts.inventory.get("gpu"))
    if needs in ("gpu", "nvlink"):
        inventory = facts.inventory.get("gpu")
        if inventory is None or inventory.fault is not None or inventory.count is None:
            return "unknown", inventory.text if inventory and inventory.text else "the GPUs have not been reported"
        if not inventory.count:
            return "absent", "no GPU"
        if len(facts.gpus) < inventory.count:
            return "unknown", f"{len(facts.gpus)} of {inventory.count} GPUs have reported"
        if needs == "nvlink" and not any(info.nvlinks for info, _ in facts.gpus):
            return "absent", "no NVLink"
    if needs == "nic" and not facts.nics:
        inventory = facts.inventory.get("nic")
        return ("absent", "no network port") if inventory and inventory.count == 0 else ("unknown", "no port reported")
    return None


def _no_driver(inventory: Inventory | None) -> tuple[CheckState, str] | None:
    """Why neither the driver nor the number of GPUs can be judged."""
    if inventory is None:
        return "unknown", "the GPUs have not been reported"
    has_gpus = inventory.fault is not None or inventory.count or inventory.missing
    return None if has_gpus else ("absent", "no GPU")
