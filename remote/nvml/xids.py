"""XIDs, the NVIDIA driver's error reports: severity, meaning, recommended action, and who acts on it.

Source: the Xid Catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), which covers Ampere and
newer GPUs, codes 1 to 172, as of 2025-10-29. `action` is the word of its column "Immediate Action", None where that is
empty or the code is not listed. Meanings and remedies are in our words; severity and owner follow from both action
columns:

- `error`: the GPU or node needs a reset, a restart or service;
- `warning`: a program ended or may end, or there is something to investigate;
- `info`: no action is needed, or the XID accompanies others.
"""

import collections
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: `owner`: user, operator or vendor.
Meaning = collections.namedtuple("Meaning", "severity text try_ action owner")

_RESET = "reset the GPU (nvidia-smi --gpu-reset) after its programs and gconsole have ended, or reboot the node"
_RESET_OR_SUPPORT = _RESET + "; contact the vendor's support if it recurs"
_REBOOT = "drain the node and reboot it"
_PROGRAM = "fix the program, the usual cause, and restart it"
_RESTART = "restart the program; contact the vendor's support if it recurs"
_SUPPORT = "contact the vendor's support"
_IF_IT_RECURS = "nothing at once; contact the vendor's support if it recurs"
_LINK = "compare with the other GPUs and switches; have a link that recurs serviced"
_SEE_DOCS = "look it up in NVIDIA's XID documentation"

#: (action, severity, owner, remedy, {codes: meaning}); codes as "8 40-42".
_GROUPS = (
    ("RESTART_APP", "warning", "user", _PROGRAM, {
        "11 32": "invalid GPU commands (push buffer)",
        "13": "graphics engine exception: illegal operation in a kernel",
        "25": "illegal GPU commands (push buffer)",
        "31": "MMU fault: illegal GPU memory access by a program",
        "60": "video processor exception",
        "69": "graphics engine class error",
        "80": "corrupt data sent to the GPU",
    }),
    ("RESTART_APP", "warning", "user", _RESTART, {
        "8": "GPU stopped processing: channel timeout",
        "39-41 70-72 75-77 85 126-135": "copy engine error",
        "68 83 84 88 89 96-98": "video decoder error",
        "82 99-105": "JPEG decoder error",
        "86 139": "optical flow engine error",
    }),
    ("RESTART_APP", "warning", "user", "restart the program, and reset the GPU when convenient", {
        "94": "contained uncorrectable memory error: only the affected program is lost",
    }),
    ("RESET_GPU", "error", "operator", _RESET_OR_SUPPORT, {
        "46": "GPU stopped processing",
        "62": "internal microcontroller halt",
        "64": "row remapping failed",
        "95": "uncontained uncorrectable memory error: all programs on the GPU may be affected",
        "109": "context switch timeout",
        "110": "security fault",
        "119": "GSP (GPU system processor) RPC timeout",
        "120": "GSP (GPU system processor) error",
        "136": "link training failed",
        "140": "unrecovered uncorrectable memory error",
        "143": "GPU initialisation failed",
        "155": "NVLink error defined by software, such as a link that was shut down",
        "158": "fatal timeout",
    }),
    ("RESET_GPU", "error", "operator", _RESET, {"156": "resource retirement recorded"}),
    ("WORKFLOW_XID_48", "error", "operator", _RESET_OR_SUPPORT, {"48": "uncorrectable memory error (double-bit ECC)"}),
    ("RESTART_BM", "error", "operator", _REBOOT + "; if it recurs, have the GPU or its slot serviced", {
        "79": "GPU has fallen off the bus: not reachable over PCIe",
    }),
    ("RESTART_VM", "error", "operator", "restart the virtual machine that owns the GPU", {"151": "key rotation error"}),
    ("CHECK_MECHANICALS", "error", "operator", "check the seating of the board and its power cables", {
        "54": "auxiliary power of the board is not connected",
    }),
    ("WORKFLOW_NVLINK_ERR", "error", "operator", _LINK, {"74": "NVLink error"}),
    ("WORKFLOW_NVLINK5_ERR", "warning", "operator", _LINK, {
        "144": "NVLink error in the shared unit",
        "145": "NVLink error in the router",
        "146": "NVLink error in the transport layer",
        "147": "NVLink error in the TREX unit",
        "148": "NVLink error in the NVLPW unit",
        "149": "NVLink error in the network interface",
        "150": "NVLink error in the management unit",
    }),
    ("WORKFLOW_XID_45", "info", "user", "", {"45": "preemptive cleanup after an earlier error or a killed program"}),
    ("XID_154", "warning", "operator", "see the GPU's recovery action", {"154": "GPU recovery action changed"}),
    ("UPDATE_SWFW", "warning", "operator", "update driver and firmware; guest and host drivers must match", {
        "78": "vGPU could not start",
    }),
    ("CHECK_UVM", "warning", "operator", "see the XIDs before it; with unified memory or vGPUs, reset the GPU", {
        "159": "C2C (CPU to GPU) protocol error",
    }),
    ("IGNORE", "warning", "user", "check the program on this GPU first: it is the usual cause", {
        "37": "driver firmware error: method not implemented",
        "43": "GPU stopped processing a program after an error",
        "66": "illegal access by the driver",
        "108 137": "illegal remote access over NVLink",
        "160": "channel retirement recorded",
        "161": "channel retirement failed",
    }),
    ("IGNORE", "warning", "vendor", _IF_IT_RECURS, {
        "38": "driver firmware error: watchdog timeout",
        "44": "engine fault during a context switch",
        "67": "illegal access by the driver",
        "92": "high rate of corrected memory errors",
        "93": "wear limit of the infoROM exceeded",
        "141": "CUDA fast path error",
        "152": "DLA (deep learning accelerator) memory error",
        "153": "DLA (deep learning accelerator) timeout",
        "157": "resource retirement failed: no spare resources",
    }),
    ("IGNORE", "info", "operator", "", {
        "14": "error injected by a program",
        "63": "row remapping recorded, active after the next GPU reset",
        "106 107": "SMBPBI test message",
        "121": "corrected error of the C2C (CPU to GPU) link",
    }),
    ("CONTACT_SUPPORT", "warning", "vendor", _SUPPORT, {
        "142": "video encoder error",
        "56": "display engine error",
        "73": "video encoder exception",
        "1-7 9 10 12 15-24 26-30 33-36 42 47 49-53 55 59 65 81 87 90 91 111-118 138":
            "listed by NVIDIA as unused on Ampere and newer GPUs",
    }),
    ("CONTACT_SUPPORT", "error", "vendor", _SUPPORT, {
        "57": "memory interface error",
        "58": "unstable memory interface timing",
        "61": "internal microcontroller breakpoint",
        "122-124": "SPI flash access failed",
        "125": "infoROM file system error",
    }),
    (None, "info", None, "", {"162": "power smoothing is active again"}),
    (None, "warning", None, _SEE_DOCS, {
        "163": "power smoothing is inactive",
        "164": "power smoothing circuit near the end of its life",
        "165": "power smoothing circuit at the end of its life",
        "166": "NVLink traffic before encryption was configured",
        "168": "errors in the protected memory region",
        "170": "NVLink interrupt in confidential computing mode",
        "171": "uncorrectable memory error in DRAM",
        "172": "uncorrectable memory error in SRAM",
    }),
    (None, "error", None, _SEE_DOCS, {"167": "fatal PCIe timeout", "169": "SEC2 microcontroller halt"}),
)  # fmt: skip


def _numbers(codes: str) -> "Iterator[int]":
    for part in codes.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


#: {code: Meaning} of the whole catalogue.
CATALOGUE = {
    number: Meaning(severity, text, try_, action, owner)
    for action, severity, owner, try_, texts in _GROUPS
    for codes, text in texts.items()
    for number in _numbers(codes)
}
#: The new state in a message of XID 154; drivers differ in its words ("GPU Reset Required", "PF FLR", "OS Reboot").
_CHANGED_TO = re.compile(r" to 0x[0-9a-fA-F]{1,8} \(([^()]{1,64})\)")


def meaning(number: int, words: str = "") -> Meaning:
    """The Meaning of an XID. `words`: the kernel line after the number."""
    entry = CATALOGUE.get(number)
    if entry is None:
        return Meaning("warning", "not in the XID catalogue of gconsole", _SEE_DOCS, None, None)
    if number == 154:
        return _recovery(entry, words)
    if entry.action == "WORKFLOW_NVLINK5_ERR" and re.search(r"(?<!non)(?<!non[- ])fatal", words.lower()):
        return entry._replace(severity="error")
    return entry


def is_recovered(number: int, words: str) -> bool:
    """Whether the driver reports that the GPU needs no recovery action any more."""
    return number == 154 and meaning(number, words).action == "IGNORE"


def _recovery(changed: Meaning, words: str) -> Meaning:
    match = _CHANGED_TO.search(words)
    state = match.group(1).strip().lower() if match else ""
    if state == "none":
        return Meaning("info", "the driver requires no recovery action any more", "", "IGNORE", None)
    if "reboot" in state:
        return Meaning("error", "the driver requires a reboot to recover the GPU", _REBOOT, "RESTART_BM", "operator")
    if "reset" in state or "flr" in state.split():
        return Meaning("error", "the driver requires a GPU reset", _RESET, "RESET_GPU", "operator")
    if "drain" in state:
        try_ = "end the programs that use NVLink with this GPU"
        return changed._replace(severity="error", text="the driver requires peer-to-peer traffic to end", try_=try_)
    return changed
