"""Every GPU's global timer beside this machine's clock, through the CUDA driver: a program of its own.

The agent starts it once a minute where `[clock] gpu_clock` asks for that, and reads a line of JSON for each GPU. The
driver has no call that reads the timer, so a kernel of a few instructions does: the machine's clock is read before it
is launched and after what it wrote can be seen, and the tightest of many such brackets is kept. That takes a CUDA
context on the GPU (some hundred MB of its memory, for about a second), and code of a driver that may fault: both go
with this process. Nothing of gconsole is imported here; it runs on Python 3.6.
"""

import ctypes
import json
import os
import sys
import time

#: cuda.h: CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST, CU_MEMHOSTALLOC_DEVICEMAP.
_CONTEXT, _MAPPED = 0x01 | 0x08, 0x02
#: cuda.h, CUresult: there is no GPU; the library is a stub without a driver.
_NO_DEVICE, _STUB = 100, 34
#: The tightest of so many brackets, or of those that fit into so long.
_READS, _READS_S = 64, 1.0
#: A GPU that a job keeps busy runs the kernel when that job's turn is over: tens of milliseconds.
_ANSWER_S = 2.0
_STEPS = 8
#: Where the timer was not seen to move within a kernel: what it moves by on GPUs before Hopper, ns.
_COARSEST_NS = 1024

#: `read_timer` writes the timer, and behind it `turn`; `time_step` by how much the timer moves when it does.
#: For every GPU since Pascal: the driver compiles it for the GPU at hand.
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
    """A call of the driver failed; `code` is its CUresult, None where the driver has no such call."""

    def __init__(self, name, code, words):
        super(CudaError, self).__init__("%s: %s" % (name, words))
        self.code = code


class Driver(object):
    """libcuda, by the names of its calls. Raises OSError where it is not installed."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *args):
        """Call it; raises CudaError."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaError(name, None, "this driver has no such call")
        code = function(*args)
        if code:
            raise CudaError(name, code, self._words(code))

    def _words(self, code):
        text = ctypes.c_char_p()
        try:
            if self._library.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value:
                return "%s (%d)" % (text.value.decode("utf-8", "replace"), code)
        except AttributeError:
            pass  # a driver that explains nothing
        return "error %d" % code


class Timer(object):
    """The timer of one GPU, in a context of its own; `close` gives that back."""

    def __init__(self, driver, device):
        self._driver = driver
        self._context = ctypes.c_void_p()
        driver.call("cuCtxCreate_v2", ctypes.byref(self._context), ctypes.c_uint(_CONTEXT), device)
        try:
            self._prepare()
        except CudaError:
            self.close()
            raise

    def _prepare(self):
        call, module = self._driver.call, ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self._kernels = {}
        for name in (b"read_timer", b"time_step"):
            kernel = ctypes.c_void_p()
            call("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(name))
            self._kernels[name] = kernel
        host, self._there = ctypes.c_void_p(), ctypes.c_uint64()
        call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(64), ctypes.c_uint(_MAPPED))
        call("cuMemHostGetDevicePointer_v2", ctypes.byref(self._there), host, ctypes.c_uint(0))
        self._slot = (ctypes.c_uint64 * 2).from_address(host.value)
        self._turn = 0

    def close(self):
        """Give the context back, and all that it has."""
        self._driver.call("cuCtxDestroy_v2", self._context)

    def ask(self, name):
        """(what the kernel wrote, the clock before, the clock after). Raises CudaError."""
        self._turn += 1
        slot, turn = self._slot, self._turn
        asked = ctypes.c_uint64(turn)
        args = (ctypes.c_void_p * 2)(ctypes.addressof(self._there), ctypes.addressof(asked))
        before = raw_ns()
        self._driver.call("cuLaunchKernel", self._kernels[name], 1, 1, 1, 1, 1, 1, 0, None, args, None)
        until = before + int(_ANSWER_S * 1e9)
        while slot[1] != turn:
            if raw_ns() > until:
                raise CudaError("cuLaunchKernel", None, "the kernel did not run within %.0f s" % _ANSWER_S)
        after = raw_ns()
        self._driver.call("cuCtxSynchronize")
        return slot[0], before, after


def raw_ns():
    """CLOCK_MONOTONIC_RAW, ns."""
    return _read(time.CLOCK_MONOTONIC_RAW)


if hasattr(time, "clock_gettime_ns"):
    _read = time.clock_gettime_ns

else:  # Python 3.6

    def _read(clock):
        return int(time.clock_gettime(clock) * 1e9)


def correlate(timer):
    """{gpu_ns, raw, width_ns, step_ns, reads}: the timer at `raw`, the middle of the tightest bracket."""
    best, reads = None, 0
    until = time.monotonic() + _READS_S
    while reads < _READS and (not reads or time.monotonic() < until):
        gpu_ns, before, after = timer.ask(b"read_timer")
        reads += 1
        if best is None or after - before < best["width_ns"]:
            best = {"gpu_ns": gpu_ns, "raw": (before + after) // 2, "width_ns": after - before}
    steps = [timer.ask(b"time_step")[0] for _ in range(_STEPS)]
    return dict(best, step_ns=max(steps) or _COARSEST_NS, reads=reads)


def uuid_of(driver, device):
    """As NVML writes it: GPU-53494d00-0000-4000-8000-000000000000."""
    said = (ctypes.c_ubyte * 16)()
    try:
        driver.call("cuDeviceGetUuid_v2", ctypes.byref(said), device)  # of a MIG device its own
    except CudaError as error:
        if error.code is not None:
            raise
        driver.call("cuDeviceGetUuid", ctypes.byref(said), device)
    text = "".join("%02x" % byte for byte in said)
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def look(driver, index):
    """The line of one GPU."""
    found = {"index": index, "uuid": None}
    try:
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), index)
        found["uuid"] = uuid_of(driver, device)
        timer = Timer(driver, device)
        try:
            found.update(correlate(timer))
        finally:
            timer.close()
    except CudaError as error:
        return {"index": index, "uuid": found["uuid"], "error": str(error)}
    return found


def main():
    """A line for each GPU, or one that says why there is none."""
    # What it compiles is not left in a home, GPUs are counted as NVML counts them, and none is hidden.
    os.environ.update(CUDA_CACHE_DISABLE="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    count = ctypes.c_int()
    try:
        driver = Driver()
        driver.call("cuInit", 0)
        driver.call("cuDeviceGetCount", ctypes.byref(count))
    except OSError as error:
        say({"none": "no_library", "text": str(error)})
        return
    except CudaError as error:
        say({"none": "no_gpu" if error.code in (_NO_DEVICE, _STUB) else "failed", "text": str(error)})
        return
    if not count.value:
        say({"none": "no_gpu", "text": "the CUDA driver runs, and sees no GPU"})
    for index in range(count.value):
        say(look(driver, index))


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
