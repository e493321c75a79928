"""Classes of kernel messages that matter to a training job: how each is recognised, how severe it is, what to do.

The patterns follow the format strings of Linux 4.18 to 6.12 (mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c,
arch/*/mm/fault.c, drivers/pci/pcie/aer.c, drivers/edac, fs/ext4, fs/xfs, net/sunrpc, drivers/nvme) and of the drivers
of NVIDIA and Mellanox. Each begins at the start of the message: a name that a user chose, such as that of a process,
has at most 15 characters there, and is too short to pass for another message. All others are not faults.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    Match = re.Match[str]
    Refine = Callable[[Match], "tuple[str, str] | None"]

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
_DRIVER = "check the GPU driver: nvidia-smi, dmesg; reload it or reboot the node"
_TABLE = "raise the limit of the table that the message names (sysctl net.)"
_WAIT = "check what it waits for, often a file system: the trace after this line in dmesg"
_SXID = "look the SXid up in the documentation of the fabric manager; drain the node if it recurs"


class Fault(object):
    """One message: its class, severity, remedy, and the process or device that it names."""

    __slots__ = ("is_over", "name", "pid", "severity", "subject", "try_")

    def __init__(
        self, name: str, severity: str, try_: str, subject: str = "", pid: "int | None" = None, is_over: bool = False
    ) -> None:
        self.name, self.severity, self.try_, self.subject, self.pid = name, severity, try_, subject, pid
        self.is_over = is_over  # the message says that the fault has ended


class _Rule(object):
    """`pattern` may have the groups `who` (process or device), `pid`, and `over` (the fault has ended).

    `words`: one of them is in each message that matches. `refine` returns another (class, severity) for a match, or
    None: the message is not a fault.
    """

    def __init__(
        self, name: str, severity: str, try_: str, pattern: str, words: "tuple[str, ...]",
        refine: "Refine | None" = None,
    ) -> None:  # fmt: skip
        self.name, self.severity, self.try_, self.words, self.refine = name, severity, try_, words, refine
        self.text = pattern
        self._pattern: "re.Pattern[str] | None" = None

    def match(self, text: str) -> "Match | None":
        """The match at the start of a message.

        Compiled for the first message with one of the words: all patterns take 5 ms of CPU, and most nodes report few
        of the faults.
        """
        if not any(word in text for word in self.words):
            return None
        if self._pattern is None:
            self._pattern = re.compile(self.text)
        return self._pattern.match(text)


def _machine_check(match: "Match") -> "tuple[str, str]":
    """By bit 61 (UC) of MCi_STATUS, Intel SDM volume 3B: a corrected error is reported in the same words."""
    status = match.group("status")
    is_corrected = status is not None and not match.group("exception") and not int(status, 16) >> 61 & 1
    return ("machine_check_corrected", "info") if is_corrected else ("machine_check", "error")


def _sxid(match: "Match") -> "tuple[str, str] | None":
    rest = match.group("rest")
    if rest.startswith(("Severity ", "Data {")):  # details of the message before it
        return None
    return "sxid", "warning" if rest.startswith("Non-fatal") else "error"


#: A process's name: TASK_COMM_LEN bytes, of which /dev/kmsg escapes all but printable ASCII.
_COMM = r"(?P<who>(?:\\x[0-9a-f]{2}|.){1,16}?)"
_PID = r"(?P<pid>[0-9]+)"
_PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_DRIVER_OF_PCI = r"[a-z][\w-]{1,30} "
_NETDEV = r"[A-Za-z][\w.@-]{0,15}"
_APEI = r"(?:\{[0-9]+\})?\[Hardware Error\]: "
#: Block devices whose errors are common and harmless: floppy and optical drives.
_BLOCK = r"(?!fd[0-9]|sr[0-9])"

_RULES = (
    _Rule("oom_kill_in_cgroup", "warning", _MEMORY,
        r"Memory cgroup out of memory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process " + _PID
        + r" \(" + _COMM + r"\)(?: score | total-vm:|,|$)",
        words=("Memory cgroup out of memory",)),
    _Rule("oom_kill", "error", _MEMORY,
        r"Out of memory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process " + _PID
        + r" \(" + _COMM + r"\)(?: score | total-vm:|,|$)",
        words=("Out of memory",)),
    _Rule("segfault", "warning", _PROGRAM,
        _COMM + r"\[" + _PID + r"\]: (?:segfault (?:at |\([0-9]+\) at )|unhandled (?:exception: |signal [0-9]+ at ))",
        words=("segfault ", "unhandled ")),
    _Rule("segfault", "warning", _PROGRAM,
        r"traps: " + _COMM + r"\[" + _PID + r"\] (?:general protection(?: fault)? ip:|trap [a-z ]{3,40} ip:)",
        words=("traps: ",)),
    _Rule("hung_task", "warning", _WAIT,
        r"INFO: task (?P<who>.{1,64}?):" + _PID + r" blocked for more than [0-9]+ seconds",
        words=(" blocked for more than ",)),
    _Rule("lockup", "error", _KERNEL,
        r"(?:NMI )?(?:watchdog: )?(?:BUG: soft lockup - CPU#(?P<who>[0-9]+) stuck for "
        r"|Watchdog detected hard LOCKUP on (?:cpu|CPU) ?(?P<cpu>[0-9]+))"
        r"|(?:rcu: )?INFO: rcu_[a-z]+ (?:self-)?detected (?:expedited )?stalls? on CPU",
        words=("soft lockup", "hard LOCKUP", "stall on CPU", "stalls on CPU")),
    _Rule("kernel_bug", "error", _KERNEL,
        r"Kernel panic - not syncing: |kernel BUG at \S+:[0-9]+!|BUG: unable to handle (?:kernel |page )"
        r"|BUG: kernel NULL pointer dereference, |Unable to handle kernel \w+ .{0,40}at virtual address"
        r"|(?:Oops: |Internal error: Oops: )?(?:general protection fault|Oops)[:,] .{0,120}?[0-9a-f]{4,16} \[#[0-9]+\]"
        r"|Oops: [0-9a-f]{4} \[#[0-9]+\]|Internal error: .{1,80} \[#[0-9]+\]",
        words=("Kernel panic", "BUG at ", "BUG: ", "Unable to handle ", " [#")),
    _Rule("nfs", "warning", _SERVER,
        r"(?:nfs|lockd): server (?P<who>\S+) (?:not responding|(?P<over>OK))"
        r"|NFS: state manager: .{0,60}failed on NFSv4 server (?P<server>\S+) with error",
        words=("nfs: ", "lockd: ", "NFS: ")),
    _Rule("lustre", "warning", _SERVER,
        r"Lustre: (?P<who>\S+): Connection (?:to .{1,160} was lost|(?P<over>restored) to )"
        r"|LustreError: .{0,40}?: (?P<client>\S+): This client was evicted by",
        words=("Lustre",)),
    _Rule("ceph", "warning", _SERVER,
        r"libceph: (?P<who>mon[0-9]+) \S+ session (?:lost|(?P<over>established))"
        r"|ceph: .{0,60}?(?P<server>mds[0-9]+) hung",
        words=("ceph: ",)),
    _Rule("cifs", "warning", _SERVER,
        r"CIFS: VFS: (?P<who>\\\S+) has not responded in [0-9]+ seconds",
        words=("CIFS: ",)),
    _Rule("file_system", "error", _DISK,
        r"EXT4-fs error \(device (?P<who>[^)\s]+)\)|EXT4-fs \((?P<ext4>[^)\s]+)\): (?:Remounting filesystem read-only"
        r"|This should not happen!! Data will be lost)|Aborting journal on device (?P<journal>\S+?)\.?$"
        r"|XFS \((?P<xfs>[^)\s]+)\): .{0,80}?(?:[Cc]orruption|[Ss]hutting down|has been shut down|I/O [Ee]rror"
        r"|writeback error)"
        r"|BTRFS:? (?:error|critical) \(device (?P<btrfs>[^)\s:]+)|BTRFS info \(device (?P<forced>[^)\s:]+).{0,20}: "
        r"forced readonly",
        words=("EXT4-fs error", "filesystem read-only", "Data will be lost", "Aborting journal ", "XFS (", "BTRFS")),
    _Rule("disk", "error", _DISK,
        r"(?:blk_update_request: |print_req_error: )?(?:I/O|critical (?:medium|target|nexus|space allocation)) error, "
        r"dev " + _BLOCK + r"(?P<who>[^,\s]+), sector"
        r"|Buffer I/O error on dev(?:ice)? " + _BLOCK + r"(?P<buffer>[^,\s]+),"
        r"|nvme (?P<nvme>nvme[0-9]+): (?:I/O (?:tag )?[0-9]+ .{0,60}timeout|controller is down|Device not ready"
        r"|Removing after probe failure|Disabling device|starting error recovery)"
        r"|(?P<space>nvme[0-9]+n[0-9]+): .{1,60} @ LBA [0-9]+, [0-9]+ blocks, "
        r"|md/raid[0-9:]*(?P<md>md\w+): Disk failure on ",
        words=(" error, dev ", "Buffer I/O error ", "nvme", "md/raid")),
    _Rule("ecc_uncorrected", "error", _HARDWARE, r"EDAC (?P<who>MC[0-9]+): [0-9]+ UE .{1,120} on ",
        words=("EDAC ",)),
    _Rule("ecc_corrected", "info", _HARDWARE, r"EDAC (?P<who>MC[0-9]+): [0-9]+ CE .{1,120} on ",
        words=("EDAC ",)),
    _Rule("machine_check", "error", _HARDWARE,
        r"(?:mce: )?\[Hardware Error\]: CPU (?P<who>[0-9]+): Machine Check(?P<exception> Exception)?: [0-9a-f]+ "
        r"Bank [0-9]+: (?P<status>[0-9a-f]{16})", refine=_machine_check,
        words=("[Hardware Error]",)),
    _Rule("machine_check", "error", _HARDWARE,
        r"(?:mce: )?\[Hardware Error\]: (?:CPU (?P<who>[0-9]+): Machine Check Exception|Machine check: |Uncorrected, "
        r"|System Fatal error|Uncorrected error)"
        r"|" + _APEI + r"event severity: (?:fatal|recoverable)"
        r"|mce: Uncorrected hardware memory error in "
        r"|Memory failure: 0x[0-9a-f]+: (?:Sending SIGBUS to (?P<comm>.{1,64}?):" + _PID + r" "
        r"|(?!.*soft.offline))",
        words=("[Hardware Error]", "hardware memory error", "Memory failure: ")),
    _Rule("machine_check_corrected", "info", _HARDWARE,
        r"(?:mce: )?\[Hardware Error\]: (?:Machine check events logged|Corrected error|Deferred error)"
        r"|" + _APEI + r"event severity: corrected",
        words=("[Hardware Error]",)),
    _Rule("pcie_uncorrected", "error", _HARDWARE,
        _DRIVER_OF_PCI + r"(?P<who>" + _PCI + r"): "
        r"(?:(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able)|DPC: (?:containment event|unmasked uncorrectable)"
        r"|AER: (?:Multiple )?Uncorrect(?:ed|able) )",
        words=("PCIe Bus Error", "DPC: ", "AER: ")),
    _Rule("pcie_corrected", "info", _HARDWARE,
        _DRIVER_OF_PCI + r"(?P<who>" + _PCI + r"): "
        r"(?:(?:AER: )?PCIe Bus Error: severity=Correct(?:ed|able)|AER: (?:Multiple )?Correct(?:ed|able) error )",
        words=("PCIe Bus Error", "AER: ")),
    _Rule("pcie_link", "error", _HARDWARE,
        r"pcieport (?P<who>" + _PCI + r"): pciehp: Slot\([^)]{1,16}\): (?:Link Down|Card not present)",
        words=("pciehp: ",)),
    _Rule("nic", "error", _LINK,
        r"mlx[45]_core (?P<who>[0-9a-f:.]+): .{0,80}?(?:health compromised|[Ff]atal error|assert_var\[|synd 0x"
        r"|Health issue observed|[Hh]igh [Tt]emperature|Port module event\[error\]"
        r"|wait_func.{0,80}timeout|wait_fw_init.{0,80}(?:timeout|abort))"
        r"|NETDEV WATCHDOG: (?P<netdev>" + _NETDEV + r") \(\S+\): transmit queue [0-9]+ timed out"
        r"|\w+ \S+ (?P<queue>" + _NETDEV + r"): NETDEV WATCHDOG: CPU: [0-9]+: transmit queue [0-9]+ timed out",
        words=("mlx", "NETDEV WATCHDOG")),
    _Rule("rdma", "warning", _LINK,
        r"infiniband (?P<who>\w{1,32}): .{0,60}?(?:WC error: |dump error cqe)",
        words=("infiniband ",)),
    _Rule("link", "warning", _LINK,
        r"(?:[a-z][\w-]{1,20} " + _PCI + r" |[a-z]\w{1,12}: )?(?P<who>" + _NETDEV + r")(?: \(\w+\))?: "
        r"(?:[a-z]\w{1,12}: " + _NETDEV + r" )?(?:NIC )?[Ll]ink (?:is )?"
        r"(?:[Dd]own$|(?P<over>[Uu]p)(?:$|,| at | - | [0-9]))"
        r"|[a-z]\w{1,12}: (?P<intel>" + _NETDEV + r") NIC Link is (?:Down$|(?P<linked>Up)(?:$|,| [0-9]))"
        r"|(?:bonding: )?bond\w*: (?:\(slave (?P<slave>" + _NETDEV + r")\): )?link status (?:definitely down|"
        r"(?P<up>definitely up))",
        words=("ink is ", "ink up", "ink Up", "ink down", "ink Down", "ink status ")),
    _Rule("thermal", "warning", _COOLING,
        r"(?:mce: )?(?P<who>CPU[0-9]+): (?:Core|Package) temperature"
        r"(?:(?: is)? above threshold|/speed (?P<over>normal))"
        r"|(?:thermal )?(?P<zone>[\w .-]{1,40}): (?:[\w.-]{1,20}: )?[Cc]ritical temperature reached",
        words=("temperature",)),
    _Rule("sxid", "error", _SXID,
        r"nvidia-nvswitch(?P<who>[0-9]+): SXid \([^)]{1,40}\): [0-9]{1,6}, (?P<rest>.*)", refine=_sxid,
        words=("SXid",)),
    _Rule("gpu_driver", "error", _DRIVER,
        r"NVRM: GPU (?:at )?(?:PCI:)?(?P<who>[0-9a-fA-F:.]+): (?:RmInitAdapter failed|rm_init_adapter failed"
        r"|GPU has fallen off the bus)|NVRM: API mismatch: |NVRM: rm_init_adapter failed"
        r"|amdgpu (?P<amd>" + _PCI + r"): (?:amdgpu: )?(?:GPU reset begin"
        r"|ring \S+ timeout|uncorrectable hardware error)",
        words=("NVRM: ", "amdgpu ")),
    _Rule("allocation_failure", "warning", _MEMORY,
        _COMM + r": page allocation failure: order:[0-9]",
        words=("page allocation failure",)),
    _Rule("network_table", "warning", _TABLE,
        r"nf_conntrack: (?:nf_conntrack: )?table full, dropping packet"
        r"|neighbour: (?P<who>\w+): neighbor table overflow!",
        words=("nf_conntrack: ", "neighbour: ")),
)  # fmt: skip
#: Most messages have none of these words.
_WORDS = tuple(dict.fromkeys(word for rule in _RULES for word in rule.words))
_XID = _Rule("xid", "", "",
    r"NVRM: Xid \((?:PCI:)?(?P<who>[0-9a-fA-F:.]+)\): (?P<number>[0-9]+)"
    r"(?:, *(?P<words>(?:pid='?(?P<pid>[0-9]+)'?, )?.*))?",
    words=("NVRM: Xid",),
)  # fmt: skip
_DEVICES = (
    "who", "ext4", "xfs", "btrfs", "forced", "journal", "nvme", "space", "buffer", "md", "server", "client", "comm",
    "cpu", "netdev", "queue", "intel", "slave", "zone", "amd",
)  # fmt: skip
#: The memory cgroup of the process that the next message reports as killed (mm/oom_kill.c, since 5.0).
_OOM_CGROUP = _Rule("oom_cgroup", "", "",
    r"oom-kill:constraint=.*?,task_memcg=(?P<cgroup>/.{0,255}?),task=.{0,64}?,pid=" + _PID + r",uid=",
    words=("oom-kill:",),
)  # fmt: skip
LARGEST_PID = 1 << 22


def fault_of(text: str) -> "Fault | None":
    """The fault that a message of the kernel log reports; None for all other messages."""
    for word in _WORDS:  # a generator takes twice as long
        if word in text:
            break
    else:
        return None
    fault = _xid(text)
    if fault is not None:
        return fault
    for rule in _RULES:
        match = rule.match(text)
        if match is not None:
            return _fault(rule, match)
    return None


def oom_cgroup(text: str) -> "tuple[int, str] | None":
    """(pid, memory cgroup) of a message that precedes the kill of a process."""
    match = _OOM_CGROUP.match(text)
    pid = _pid(match.group("pid")) if match is not None else None
    return (pid, match.group("cgroup")) if match is not None and pid is not None else None


def _fault(rule: "_Rule", match: "Match") -> "Fault | None":
    name, severity = rule.name, rule.severity
    if rule.refine is not None:
        refined = rule.refine(match)
        if refined is None:
            return None
        name, severity = refined
    groups = match.groupdict()
    subject = next((groups[device] for device in _DEVICES if groups.get(device)), "")
    over = bool(groups.get("over") or groups.get("up") or groups.get("linked"))
    return Fault(name, "info" if over else severity, "" if over else rule.try_, subject, _pid(groups.get("pid")), over)


def _xid(text: str) -> "Fault | None":
    match = _XID.match(text)
    if match is None or len(match.group("number")) > 6:
        return None
    from ..nvml import xids  # few nodes have one

    number, words = int(match.group("number")), (match.group("words") or "").strip()[:300]
    meaning = xids.meaning(number, words)
    is_over = xids.is_recovered(number, words)
    return Fault("xid", meaning.severity, meaning.try_, match.group("who"), _pid(match.group("pid")), is_over)


def _pid(digits: "Optional[str]") -> "int | None":
    return int(digits) if digits and len(digits) <= 7 and int(digits) <= LARGEST_PID else None
