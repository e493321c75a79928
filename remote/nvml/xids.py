"""Meaning, severity and remedy of XIDs, the NVIDIA driver's error reports.

`error`: the GPU or node needs a reset or repair; `warning`: ended a program or may do so; `info`: follows other XIDs.
"""

_RESET = "reset the GPU (nvidia-smi --gpu-reset) after its programs have ended, or reboot the node"
_REPAIR = "drain the node; if it recurs after a reboot, have the GPU or its slot serviced"
_PROGRAM = "check the program on this GPU first: it is the usual cause"
_LINK = "compare with the other GPUs and switches; have a link that recurs serviced"

_XIDS = {
    13: ("warning", "graphics engine exception: illegal operation in a kernel", _PROGRAM),
    31: ("warning", "MMU fault: illegal GPU memory access by a program", _PROGRAM),
    32: ("warning", "PBDMA error: invalid GPU commands", _PROGRAM),
    38: ("warning", "driver firmware error", _RESET),
    43: ("warning", "GPU stopped processing a program after an error", _PROGRAM),
    44: ("warning", "engine fault during a context switch", _PROGRAM),
    45: ("info", "preemptive cleanup after an earlier error or a killed program", ""),
    46: ("error", "GPU stopped processing", _RESET),
    48: ("error", "uncorrectable memory error (double-bit ECC)", _RESET),
    54: ("error", "auxiliary power of the board is not connected", _REPAIR),
    56: ("error", "display engine error", _RESET),
    57: ("error", "memory interface error", _REPAIR),
    58: ("error", "unstable memory interface timing", _REPAIR),
    61: ("error", "internal microcontroller breakpoint", _RESET),
    62: ("error", "internal microcontroller halt", _RESET),
    63: ("warning", "row remapping recorded, active after the next GPU reset", _RESET),
    64: ("error", "row remapping failed", _REPAIR),
    66: ("warning", "illegal access by the driver", _PROGRAM),
    68: ("warning", "video decoder exception", _PROGRAM),
    69: ("warning", "graphics engine class error", _PROGRAM),
    73: ("warning", "video encoder exception", _PROGRAM),
    74: ("error", "NVLink error", _LINK),
    79: ("error", "GPU has fallen off the bus: not reachable over PCIe", _REPAIR),
    92: ("error", "high rate of corrected memory errors", _REPAIR),
    94: ("warning", "contained uncorrectable memory error: only the affected program is lost", _RESET),
    95: ("error", "uncontained uncorrectable memory error: all programs on the GPU may be affected", _RESET),
    109: ("warning", "context switch timeout", _PROGRAM),
    110: ("error", "security fault", _REPAIR),
    119: ("error", "GSP (GPU system processor) RPC timeout", _RESET),
    120: ("error", "GSP (GPU system processor) error", _RESET),
    121: ("warning", "C2C (CPU to GPU) link error", _RESET),
    122: ("error", "SPI flash read failure", _REPAIR),
    123: ("error", "power management unit failure", _RESET),
    125: ("error", "corrupt infoROM", _REPAIR),
    126: ("error", "corrupt infoROM", _REPAIR),
    136: ("error", "link training failed", _LINK),
    137: ("warning", "illegal remote access over NVLink", _PROGRAM),
    140: ("error", "unrecovered uncorrectable memory error", _RESET),
    143: ("error", "GPU initialisation failed", _RESET),
    154: ("warning", "GPU recovery action changed", "see the GPU's recovery action"),
}
#: NVLink 5 and newer: the number is the unit; the kernel line carries the severity.
_NVLINK_UNITS = {
    144: "shared unit",
    145: "router",
    146: "transport layer",
    147: "TREX unit",
    148: "NVLPW unit",
    149: "network interface",
    150: "management unit",
}


def meaning(number: int, words: str = "") -> "tuple[str, str, str]":
    """(severity, text, try_) of an XID. `words`: the kernel line after the number."""
    if number in _NVLINK_UNITS:
        severity = "warning" if "nonfatal" in words.lower().replace("-", "") else "error"
        return severity, "NVLink error in the %s" % _NVLINK_UNITS[number], _LINK
    if number == 154 and "reboot" in words.lower():
        return "error", "the driver requires a node reboot to recover the GPU", "drain the node and reboot it"
    if number == 154 and "reset" in words.lower():
        return "error", "the driver requires a GPU reset", _RESET
    if number in _XIDS:
        return _XIDS[number]
    return "warning", "not in the list of gconsole", "look it up in NVIDIA's XID documentation"
