"""Opening NVML: the module where a driver library is there, and a name for each way in which it is not."""

import ctypes

from ..samplers.base import Unavailable

#: nvml.h, nvmlReturn_t: (name of the state, what happened, what to try) for those that nvmlInit is known to give.
_STATES = {
    4: (
        "gpu_no_permission",
        "the driver is there, but this user may not use it",
        'let the login user open /dev/nvidia* (its group, the container\'s devices), or [agent] run_as = "sudo"',
    ),
    9: (
        "gpu_driver_not_loaded",
        "the NVIDIA library is installed, its kernel driver is not loaded",
        "modprobe nvidia, and look at dmesg for the reason if that fails",
    ),
    12: (
        "gpu_no_driver",
        "no NVIDIA driver library (libnvidia-ml.so.1) on this node",
        "install the driver if the node has GPUs; in a container, start it with the GPUs",
    ),
    18: (
        "gpu_driver_mismatch",
        "the NVIDIA kernel driver and its library are of different versions",
        "the driver was updated under running programs: reload its modules or reboot the node",
    ),
}
_OTHER_TRY = "run nvidia-smi on the node: it says the same in more words"
_NO_LIBRARY = 12


def find_library():
    """Raise Unavailable where the driver's library is not installed: then not even its binding need be imported."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        name, text, try_ = _STATES[_NO_LIBRARY]
        if "No such file" not in str(error):
            text = "the NVIDIA driver library cannot be loaded: %s" % error
        raise Unavailable(text, try_, name)


def initialise(nvml):
    """Start NVML. Raises Unavailable with the name of the state it is in."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        code = getattr(error, "value", None)
        if code in _STATES:
            name, text, try_ = _STATES[code]
            raise Unavailable("%s (NVML: %s)" % (text, error), try_, name)
        raise Unavailable("NVML does not start: %s" % error, _OTHER_TRY, "gpu_nvml_failed")


def count(nvml):
    """How many GPUs there are. Raises Unavailable where that is none, or cannot be known."""
    try:
        found = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise Unavailable("NVML does not say how many GPUs there are: %s" % error, _OTHER_TRY, "gpu_nvml_failed")
    if not found:
        try_ = "lspci -d 10de: says what is plugged in"
        raise Unavailable("the NVIDIA driver runs, and sees no GPU", try_, "gpu_none")
    return found
