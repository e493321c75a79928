"""Classes of kernel messages that matter to a training job: how each is recognised, how severe it is, what to do.

The patterns follow the format strings of the Linux kernel (mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c,
arch/x86/mm/fault.c, drivers/pci/pcie/aer.c, drivers/edac, fs/ext4, fs/xfs, net/sunrpc, drivers/nvme) and of the drivers
of NVIDIA and Mellanox. A message that matches none is not a fault.
"""

import re

from ..nvml import xids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MEMORY = (
    "reduce the memory the job needs on this node, or raise its limit; see who used it: the lines before it in dmesg"
)
_DISK = "check the disk and its file system: dmesg, smartctl; a job that writes to it may hang or lose data"
_SERVER = "check the server and the network to it; processes that use the mount hang until it responds"
_HARDWARE = "drain the node; have the hardware that the message names serviced if it recurs"
_PROGRAM = "find its core dump (coredumpctl list) and the extension or library that the message names"
_LINK = "check the cable, the transceiver and the switch port"
_COOLING = "check cooling and air flow of the node"
_KERNEL = "note the whole trace (dmesg), then reboot the node"


class Fault(object):
    """One message: its class, severity, remedy, and the process or device that it names."""

    __slots__ = ("is_over", "name", "pid", "severity", "subject", "try_")

    def __init__(
        self, name: str, severity: str, try_: str, subject: str = "", pid: "int | None" = None, is_over: bool = False
    ) -> None:
        self.name, self.severity, self.try_, self.subject, self.pid = name, severity, try_, subject, pid
        self.is_over = is_over  # the message says that the fault has ended


class _Rule(object):
    """`pattern` may have the groups `who` (process or device), `pid`, and `over` (the fault has ended)."""

    def __init__(self, name: str, severity: str, try_: str, pattern: str) -> None:
        self.name, self.severity, self.try_ = name, severity, try_
        self.pattern = re.compile(pattern)


_RULES = (
    _Rule("oom_kill_in_cgroup", "warning", _MEMORY,
        r"[Mm]emory cgroup out of memory: Kill(?:ed)? process (?P<pid>[0-9]+) \((?P<who>[^)]*)\)"),
    _Rule("oom_kill", "error", _MEMORY,
        r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>[0-9]+) \((?P<who>[^)]*)\)"),
    _Rule("segfault", "warning", _PROGRAM, r"^(?P<who>[^\[\]]{1,64})\[(?P<pid>[0-9]+)\]: segfault at "),
    _Rule("segfault", "warning", _PROGRAM,
        r"^traps: (?P<who>[^\[\]]{1,64})\[(?P<pid>[0-9]+)\] (?:general protection|trap )"),
    _Rule("hung_task", "warning", "check what it waits for, often a file system: the trace after this line in dmesg",
        r"INFO: task (?P<who>.{1,64}):(?P<pid>[0-9]+) blocked for more than [0-9]+ seconds"),
    _Rule("lockup", "error", _KERNEL,
        r"BUG: soft lockup - CPU#(?P<who>[0-9]+) stuck|[Hh]ard LOCKUP on cpu|rcu.{0,40}(?:detected|self-detected) "
        r"(?:expedited )?stall"),
    _Rule("kernel_bug", "error", _KERNEL,
        r"^(?:Kernel panic|kernel BUG at|BUG: unable to handle|BUG: kernel NULL|Oops: |general protection fault)"),
    _Rule("nfs", "warning", _SERVER,
        r"nfs: server (?P<who>\S+) (?:not responding|(?P<over>OK))"),
    _Rule("lustre", "warning", _SERVER,
        r"Lustre: (?P<who>\S+): Connection (?:to .{1,160} was lost|(?P<over>restored) to )"),
    _Rule("file_system", "error", _DISK,
        r"EXT4-fs error \(device (?P<who>[^)]+)\)|EXT4-fs \((?P<ext4>[^)]+)\): Remounting filesystem read-only"
        r"|XFS \((?P<xfs>[^)]+)\): .{0,80}(?:[Cc]orruption|[Ss]hutting down|I/O [Ee]rror)"
        r"|BTRFS (?:error|critical) \(device (?P<btrfs>[^)]+)\)"),
    _Rule("disk", "error", _DISK,
        r"(?:[Bb]uffer )?I/O error(?:,| on) dev(?:ice)? (?P<who>[^,\s]+)"
        r"|nvme (?P<nvme>nvme[0-9]+): (?:I/O (?:tag )?[0-9]+ .{0,60}timeout|controller is down|Device not ready"
        r"|Removing after probe failure|Disabling device)"),
    _Rule("ecc_uncorrected", "error", _HARDWARE, r"EDAC (?P<who>MC[0-9]+): [0-9]+ UE"),
    _Rule("ecc_corrected", "info", _HARDWARE, r"EDAC (?P<who>MC[0-9]+): [0-9]+ CE"),
    _Rule("machine_check", "error", _HARDWARE,
        r"mce: \[Hardware Error\]: (?:CPU (?P<who>[0-9]+): )?Machine Check"
        r"|\[Hardware Error\]: event severity: (?:fatal|recoverable)|Memory failure: 0x[0-9a-f]+"),
    _Rule("pcie_uncorrected", "error", _HARDWARE,
        r"(?P<who>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
        r"(?:AER: .{0,30}Uncorrect(?:ed|able)|PCIe Bus Error: severity=Uncorrect(?:ed|able))"
        r"|AER: (?:Multiple )?Uncorrect(?:ed|able).{0,60}?(?P<aer>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"),
    _Rule("pcie_corrected", "info", _HARDWARE,
        r"(?P<who>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
        r"(?:AER: .{0,30}Corrected|PCIe Bus Error: severity=Corrected)"),
    _Rule("nic", "error", _LINK,
        r"mlx5_core (?P<who>[0-9a-f:.]+): .{0,80}(?:health compromised|fatal error|assert_var|synd 0x|firmware over|"
        r"High temperature|insufficient power|wait_func.{0,40}timeout)"),
    _Rule("link", "warning", _LINK,
        r"(?:mlx5_core \S+ |bnxt_en \S+ |ice \S+ |igb \S+ |ixgbe \S+ )?(?P<who>[a-z][\w.-]{1,15}): "
        r"(?:NIC )?[Ll]ink (?:is )?(?:[Dd]own|(?P<over>[Uu]p))\b"),
    _Rule("thermal", "warning", _COOLING,
        r"(?P<who>CPU[0-9]+): (?:Core|Package) temperature(?: above threshold|/speed (?P<over>normal))"
        r"|[Cc]ritical temperature reached"),
    _Rule("sxid", "error", "look the SXid up in the documentation of the fabric manager; drain the node if it recurs",
        r"nvidia-nvswitch(?P<who>[0-9]+): SXid"),
)  # fmt: skip
#: One scan that most messages fail.
_ANY = re.compile("|".join(
    re.sub(r"\(\?P<\w+>", "(?:", rule.pattern.pattern) for rule in _RULES
))  # fmt: skip
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<who>[0-9a-fA-F:.]+)\): (?P<number>[0-9]+)(?:, *(?P<words>.*))?")
_DEVICES = ("who", "ext4", "xfs", "btrfs", "nvme", "aer")
LARGEST_PID = 1 << 22


def fault_of(text: str) -> "Fault | None":
    """The fault that a message of the kernel log reports; None for all other messages."""
    if "NVRM: Xid" in text:
        return _xid(text)
    if _ANY.search(text) is None:
        return None
    for rule in _RULES:
        match = rule.pattern.search(text)
        if match is not None:
            groups = match.groupdict()
            subject = next((groups[name] for name in _DEVICES if groups.get(name)), "")
            over = bool(groups.get("over"))
            severity = "info" if over else rule.severity
            return Fault(rule.name, severity, "" if over else rule.try_, subject, _pid(groups.get("pid")), over)
    return None


def _xid(text: str) -> "Fault | None":
    match = _XID.search(text)
    if match is None or len(match.group("number")) > 6:
        return None
    severity, _, try_ = xids.meaning(int(match.group("number")), (match.group("words") or "").strip()[:300])
    return Fault("xid", severity, try_, match.group("who"))


def _pid(digits: "Optional[str]") -> "int | None":
    return int(digits) if digits and len(digits) <= 7 and int(digits) <= LARGEST_PID else None
