"""Standalone program: the global timer of every GPU against the node's clock, through the CUDA driver.

The agent runs it once a minute if `[clock] gpu_clock` is on, and reads one line of JSON per GPU. The driver has no call
that reads the timer, so a kernel of a few instructions does, bracketed by reads of the node's clock; the tightest of
many brackets is kept. The CUDA context (some hundred MB of GPU memory, for about a second) and any fault of the driver
end with this process. Imports nothing of gconsole; runs on Python 3.6.
"""

import ctypes
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: cuda.h: CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST, CU_MEMHOSTALLOC_DEVICEMAP.
_CONTEXT, _MAPPED = 0x01 | 0x08, 0x02
#: cuda.h, CUresult: no GPU; stub library without a driver.
_NO_DEVICE, _STUB = 100, 34
#: Brackets per GPU, and their time limit in seconds.
_READS, _READS_S = 64, 1.0
#: Seconds. On a busy GPU the kernel waits for the time slice of the job to end: tens of milliseconds.
_KERNEL_TIMEOUT_S = 2.0
_STEPS = 8
#: ns. Assumed resolution if the timer did not change within a kernel: that of GPUs before Hopper.
_COARSEST_NS = 1024

#: `read_timer` writes the timer, then `turn`; `time_step` writes the timer's increment. For Pascal and newer; the
#: driver compiles it for the GPU.
PTX = b"""
.version 6.3
.target sm_60
.address_size 64

.visible .entry read_timer(.param .u64 slot, .param .u64 turn)
{
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [slot];
    ld.param.u64 %rd2, [turn];
    mov.u64 %rd3, %globaltimer;
    st.volatile.global.u64 [%rd1], %rd3;
    membar.sys;
    st.volatile.global.u64 [%rd1+8], %rd2;
    ret;
}

.visible .entry time_step(.param .u64 slot, .param .u64 turn)
{
    .reg .pred %p<3>;
    .reg .u32 %r<2>;
    .reg .u64 %rd<6>;
    ld.param.u64 %rd1, [slot];
    ld.param.u64 %rd2, [turn];
    mov.u32 %r1, 0;
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    setp.ne.u64 %p1, %rd4, %rd3;
    @%p1 bra changed;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 100000;
    @%p2 bra again;
changed:
    sub.u64 %rd5, %rd4, %rd3;
    st.volatile.global.u64 [%rd1], %rd5;
    membar.sys;
    st.volatile.global.u64 [%rd1+8], %rd2;
    ret;
}
"""


class CudaError(Exception):
    """A failed call of the driver; `code` is its CUresult, None if the driver has no such call."""

    def __init__(self, name: str, code: "int | None", words: str) -> None:
        super(CudaError, self).__init__("%s: %s" % (name, words))
        self.code = code


class CudaDriver(object):
    """libcuda. Raises OSError if it is not installed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *args: "Any") -> None:
        """Call a function of the driver. Raises CudaError."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaError(name, None, "not supported by this driver")
        code = function(*args)
        if code:
            raise CudaError(name, code, self._words(code))

    def _words(self, code: int) -> str:
        text = ctypes.c_char_p()
        try:
            if self._library.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value:
                return "%s (%d)" % (text.value.decode("utf-8", "replace"), code)
        except AttributeError:
            pass  # a driver without error texts
        return "error %d" % code


class GpuTimer(object):
    """The timer of one GPU, read in a CUDA context that `close` destroys."""

    def __init__(self, driver: "CudaDriver", device: "ctypes.c_int") -> None:
        self._driver = driver
        self._context = ctypes.c_void_p()
        driver.call("cuCtxCreate_v2", ctypes.byref(self._context), ctypes.c_uint(_CONTEXT), device)
        try:
            self._prepare()
        except CudaError:
            self.close()
            raise

    def _prepare(self) -> None:
        call, module = self._driver.call, ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self._kernels = {}
        for name in (b"read_timer", b"time_step"):
            kernel = ctypes.c_void_p()
            call("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(name))
            self._kernels[name] = kernel
        host, self._device_address = ctypes.c_void_p(), ctypes.c_uint64()
        call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(64), ctypes.c_uint(_MAPPED))
        call("cuMemHostGetDevicePointer_v2", ctypes.byref(self._device_address), host, ctypes.c_uint(0))
        self._slot = (ctypes.c_uint64 * 2).from_address(host.value or 0)
        self._turn = 0

    def close(self) -> None:
        """Destroy the context with everything allocated in it."""
        self._driver.call("cuCtxDestroy_v2", self._context)

    def run_kernel(self, name: bytes) -> "tuple[int, int, int]":
        """(value written by the kernel, clock before, clock after), ns. Raises CudaError."""
        self._turn += 1
        slot, turn = self._slot, self._turn
        argument = ctypes.c_uint64(turn)
        args = (ctypes.c_void_p * 2)(ctypes.addressof(self._device_address), ctypes.addressof(argument))
        before = raw_ns()
        self._driver.call("cuLaunchKernel", self._kernels[name], 1, 1, 1, 1, 1, 1, 0, None, args, None)
        until = before + int(_KERNEL_TIMEOUT_S * 1e9)
        while slot[1] != turn:
            if raw_ns() > until:
                raise CudaError("cuLaunchKernel", None, "kernel timed out after %.0f s" % _KERNEL_TIMEOUT_S)
        after = raw_ns()
        self._driver.call("cuCtxSynchronize")
        return slot[0], before, after


def raw_ns() -> int:
    """CLOCK_MONOTONIC_RAW, ns."""
    return _read(time.CLOCK_MONOTONIC_RAW)


if hasattr(time, "clock_gettime_ns"):
    _read = time.clock_gettime_ns

else:  # Python 3.6

    def _read(clock: int) -> int:
        return int(time.clock_gettime(clock) * 1e9)


def correlate(timer: "GpuTimer") -> "dict[str, Any]":
    """{gpu_ns, raw, width_ns, step_ns, reads}: the timer at `raw`, the middle of the tightest bracket."""
    best: "dict[str, Any]" = {}
    reads = 0
    until = time.monotonic() + _READS_S
    while reads < _READS and (not reads or time.monotonic() < until):
        gpu_ns, before, after = timer.run_kernel(b"read_timer")
        reads += 1
        if not best or after - before < best["width_ns"]:
            best = {"gpu_ns": gpu_ns, "raw": (before + after) // 2, "width_ns": after - before}
    steps = [timer.run_kernel(b"time_step")[0] for _ in range(_STEPS)]
    return dict(best, step_ns=max(steps) or _COARSEST_NS, reads=reads)


def uuid_of(driver: "CudaDriver", device: "ctypes.c_int") -> str:
    """The UUID in NVML's format: GPU-53494d00-0000-4000-8000-000000000000. Raises CudaError."""
    digits = (ctypes.c_ubyte * 16)()
    try:
        driver.call("cuDeviceGetUuid_v2", ctypes.byref(digits), device)  # the MIG device's own UUID
    except CudaError as error:
        if error.code is not None:
            raise
        driver.call("cuDeviceGetUuid", ctypes.byref(digits), device)
    text = "".join("%02x" % byte for byte in digits)
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def measure(driver: "CudaDriver", index: int) -> "dict[str, Any]":
    """The output line of one GPU."""
    line: "dict[str, Any]" = {"index": index, "uuid": None}
    try:
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), index)
        line["uuid"] = uuid_of(driver, device)
        timer = GpuTimer(driver, device)
        try:
            line.update(correlate(timer))
        finally:
            timer.close()
    except CudaError as error:
        return {"index": index, "uuid": line["uuid"], "error": str(error)}
    return line


def main() -> None:
    """Print a line for each GPU, or one with the reason why there is none."""
    # No compile cache in $HOME, GPUs in NVML's order, none hidden.
    os.environ.update(CUDA_CACHE_DISABLE="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    count = ctypes.c_int()
    try:
        driver = CudaDriver()
        driver.call("cuInit", 0)
        driver.call("cuDeviceGetCount", ctypes.byref(count))
    except OSError as error:
        _print({"none": "no_library", "text": str(error)})
        return
    except CudaError as error:
        _print({"none": "no_gpu" if error.code in (_NO_DEVICE, _STUB) else "failed", "text": str(error)})
        return
    if not count.value:
        _print({"none": "no_gpu", "text": "the CUDA driver finds no GPU"})
    for index in range(count.value):
        _print(measure(driver, index))


def _print(line: "dict[str, Any]") -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
