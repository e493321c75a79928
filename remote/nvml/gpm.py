"""GPM: activity of SMs, tensor cores, memory and buses between two samples (Hopper and newer)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .call import NvmlDevice

#: nvml.h, nvmlGpmMetricId_t: (field, number, factor). Percentages, and MiB/s for the buses.
_MIB = float(1 << 20)
METRICS = (
    ("sm_pct", 2, 1.0),
    ("sm_occupancy_pct", 3, 1.0),
    ("tensor_pct", 5, 1.0),
    ("dram_pct", 10, 1.0),
    ("pcie_tx_bytes_s", 20, _MIB),
    ("pcie_rx_bytes_s", 21, _MIB),
    ("nvlink_rx_bytes_s", 60, _MIB),
    ("nvlink_tx_bytes_s", 61, _MIB),
)
#: Metrics without another source; the buses have others, with their own reasons.
GPM_ONLY = ("sm_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct")


class GpmReader(object):
    """GPM metrics of one GPU, or of one MIG device."""

    def __init__(self, device: "NvmlDevice") -> None:
        self._device = device
        self._handle = device.handle  # the GPU that is sampled
        self._gpu_instance: "int | None" = None
        self._samples: "list[Any]" = []  # the older one first
        self._metrics: "Any" = None  # the struct of the call, filled once
        self._results: "list[Any]" = []
        self._disabled = False
        self._taken = 0

    def use_instance(self, gpu: "NvmlDevice", gpu_instance: "int | None") -> None:
        """Sample a MIG device: this GPU instance of `gpu`."""
        self._handle, self._gpu_instance = gpu.handle, gpu_instance

    @property
    def is_pending(self) -> bool:
        """Whether only the first sample exists, so that the next one yields metrics."""
        return not self._disabled and self._taken == 1

    def reset(self) -> None:
        """Try again after a lasting failure."""
        self._disabled = False

    def read(self) -> "dict[str, Any]":
        """{field: value} since the last call; {} at the first one. Raises GpuLost."""
        if self._disabled:
            return {}
        nvml = self._device.nvml
        try:
            if self._metrics is None:
                self._prepare(nvml)
            if self._sample(nvml) < 2:
                return {}
            return self._compare(nvml)
        except AttributeError:
            self._disabled = True
            self._device.mark_unsupported(GPM_ONLY, "this binding has no GPM")
        except nvml.NVMLError as error:
            self._device.record_failure(GPM_ONLY, getattr(error, "value", None), str(error))
            self._disabled = self._device.is_disabled(GPM_ONLY[0])
        return {}

    def _prepare(self, nvml: "Any") -> None:
        support = nvml.nvmlGpmQueryDeviceSupport(self._handle)
        if not support.isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        while len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        self._taken = 0
        metrics = nvml.c_nvmlGpmMetricsGet_t()
        metrics.version = nvml.NVML_GPM_METRICS_GET_VERSION
        metrics.numMetrics = len(METRICS)
        for index, (_, number, _) in enumerate(METRICS):
            metrics.metrics[index].metricId = number
        self._results = [metrics.metrics[index] for index in range(len(METRICS))]
        self._metrics = metrics

    def _sample(self, nvml: "Any") -> int:
        """Replace the older sample by a new one; returns how many were taken."""
        self._samples.reverse()
        if self._gpu_instance is None:
            nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        else:
            nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, self._samples[1])
        self._taken += 1
        return self._taken

    def _compare(self, nvml: "Any") -> "dict[str, Any]":
        self._metrics.sample1, self._metrics.sample2 = self._samples
        nvml.nvmlGpmMetricsGet(self._metrics)
        values = {}
        for index, (field, _, factor) in enumerate(METRICS):
            result = self._results[index]
            if result.nvmlReturn == 0:
                value = result.value
                if value == value and value >= 0:  # NaN: no measurement for this interval
                    values[field] = round(value * factor, 2)
            elif field in GPM_ONLY:
                self._device.note_reason(field, str(nvml.NVMLError(result.nvmlReturn)))
        return values

    def close(self) -> None:
        """Free the samples."""
        nvml = self._device.nvml
        for sample in self._samples:
            try:
                nvml.nvmlGpmSampleFree(sample)
            except nvml.NVMLError:
                pass  # freed with the lost GPU
        self._samples, self._metrics = [], None
