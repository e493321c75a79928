"""What an XID means in plain words, how bad it is, and what to do.

An XID is the NVIDIA driver's report of an error. `error` is one after which the GPU, or the node, wants a reset or a
repair; `warning` one that ended a program or may do so; `info` one that only accompanies others.
"""

_RESET = "reset the GPU (nvidia-smi --gpu-reset) once its programs are gone, or reboot the node"
_REPAIR = "drain the node; if it comes back after a reboot, the GPU or its place in the machine needs service"
_PROGRAM = "look at the program on this GPU first: mostly it is the program's own fault"
_LINK = "look at the other GPUs and the switches: if one link repeats, it needs service"

_XIDS = {
    13: ("warning", "a kernel did something illegal (graphics engine exception)", _PROGRAM),
    31: ("warning", "a program touched GPU memory that it may not (MMU fault)", _PROGRAM),
    32: ("warning", "the GPU got commands that make no sense (PBDMA error)", _PROGRAM),
    38: ("warning", "the driver's firmware reported an error", _RESET),
    43: ("warning", "a program's work on the GPU was stopped after an error", _PROGRAM),
    44: ("warning", "an engine fault while contexts were switched", _PROGRAM),
    45: ("info", "work was cleared away after an earlier error or because the program was killed", ""),
    46: ("error", "the GPU stopped processing", _RESET),
    48: ("error", "memory errors that could not be corrected (double-bit ECC)", _RESET),
    54: ("error", "a power cable of the board is not connected", _REPAIR),
    56: ("error", "the display engine failed", _RESET),
    57: ("error", "the memory interface failed", _REPAIR),
    58: ("error", "the memory interface has unstable timing", _REPAIR),
    61: ("error", "the GPU's microcontroller hit a breakpoint", _RESET),
    62: ("error", "the GPU's microcontroller halted", _RESET),
    63: ("warning", "a faulty part of memory will be remapped at the next reset", _RESET),
    64: ("error", "a faulty part of memory could not be noted for remapping", _REPAIR),
    66: ("warning", "an illegal access by the driver", _PROGRAM),
    68: ("warning", "the video decoder failed", _PROGRAM),
    69: ("warning", "a graphics engine class error", _PROGRAM),
    73: ("warning", "the video encoder failed", _PROGRAM),
    74: ("error", "an NVLink error", _LINK),
    79: ("error", "the GPU has fallen off the bus: PCIe does not reach it any more", _REPAIR),
    92: ("error", "corrected memory errors come at a high rate", _REPAIR),
    94: ("warning", "an uncorrectable memory error, contained: only the program that met it is lost", _RESET),
    95: ("error", "an uncorrectable memory error, not contained: every program on the GPU may be wrong", _RESET),
    109: ("warning", "a context switch took too long", _PROGRAM),
    110: ("error", "a security fault", _REPAIR),
    119: ("error", "the GPU's system processor (GSP) does not answer", _RESET),
    120: ("error", "the GPU's system processor (GSP) failed", _RESET),
    121: ("warning", "the link between CPU and GPU (C2C) had an error", _RESET),
    122: ("error", "the GPU's SPI flash could not be read", _REPAIR),
    123: ("error", "the GPU's power management unit failed", _RESET),
    125: ("error", "the GPU's infoROM is damaged", _REPAIR),
    126: ("error", "the GPU's infoROM is damaged", _REPAIR),
    136: ("error", "the link training failed", _LINK),
    137: ("warning", "a remote access over NVLink that is not allowed", _PROGRAM),
    140: ("error", "memory errors that could not be corrected or recovered from", _RESET),
    143: ("error", "the GPU could not be initialised", _RESET),
    154: ("warning", "the driver changed what it wants done to recover the GPU", "see the recovery action of the GPU"),
}
#: NVLink 5 and newer: the number names the unit, the kernel's words say how bad it is.
_NVLINK_UNITS = {
    144: "its shared unit",
    145: "its router",
    146: "its transport layer",
    147: "its TREX unit",
    148: "its NVLPW unit",
    149: "its network interface",
    150: "its management unit",
}


def meaning(number, words=""):
    """(severity, text, try_) of an XID. `words` is what the kernel's line says after the number."""
    if number in _NVLINK_UNITS:
        severity = "warning" if "nonfatal" in words.lower().replace("-", "") else "error"
        return severity, "an NVLink error in %s" % _NVLINK_UNITS[number], _LINK
    if number == 154 and "reboot" in words.lower():
        return "error", "the driver wants the node rebooted to recover the GPU", "drain the node and reboot it"
    if number == 154 and "reset" in words.lower():
        return "error", "the driver wants the GPU reset to recover it", _RESET
    if number in _XIDS:
        return _XIDS[number]
    return "warning", "an error that has no plain words here", "NVIDIA's list of XID errors has it"
