"""NVML start-up, with a named state for each way in which it is not available."""

import ctypes

from ..samplers.base import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: nvml.h, nvmlReturn_t: (name of the state, problem, remedy) of the results that nvmlInit is known to return.
_STATES = {
    4: (
        "gpu_no_permission",
        "the NVIDIA driver is loaded, but this user has no permission to use it",
        'let the login user open /dev/nvidia* (its group, the container\'s devices), or [agent] run_as = "sudo"',
    ),
    9: (
        "gpu_driver_not_loaded",
        "the NVIDIA library is installed, but its kernel driver is not loaded",
        "run modprobe nvidia; if that fails, dmesg has the reason",
    ),
    12: (
        "gpu_no_driver",
        "no NVIDIA driver library (libnvidia-ml.so.1) on this node",
        "install the driver if the node has GPUs; in a container, start it with the GPUs",
    ),
    18: (
        "gpu_driver_mismatch",
        "version mismatch between the NVIDIA kernel driver and its library",
        "the driver was updated while in use: reload its modules or reboot the node",
    ),
}
_OTHER_TRY = "run nvidia-smi on the node for details"
_NO_LIBRARY = 12


def check_library() -> None:
    """Raises Unavailable if the driver's library is not installed, before its binding is imported."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        name, text, try_ = _STATES[_NO_LIBRARY]
        if "No such file" not in str(error):
            text = "the NVIDIA driver library cannot be loaded: %s" % error
        raise Unavailable(text, try_, name)


def initialise(nvml: "Any") -> None:
    """Start NVML. Raises Unavailable with the name of its state."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        code = getattr(error, "value", None)
        if code in _STATES:
            name, text, try_ = _STATES[code]
            raise Unavailable("%s (NVML: %s)" % (text, error), try_, name)
        raise Unavailable("NVML failed to start: %s" % error, _OTHER_TRY, "gpu_nvml_failed")


def device_count(nvml: "Any") -> int:
    """Number of GPUs, at least 1. Raises Unavailable if there are none or NVML cannot count them."""
    try:
        devices = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise Unavailable("NVML cannot count the GPUs: %s" % error, _OTHER_TRY, "gpu_nvml_failed")
    if not devices:
        try_ = "run lspci -d 10de: to list the installed GPUs"
        raise Unavailable("the NVIDIA driver is running but finds no GPU", try_, "gpu_none")
    return int(devices)
