"""GPM: what the SMs, the tensor cores, the memory and the buses did between two samples (Hopper and newer)."""

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
#: Those that nothing else can say; the buses have other sources, and their own reasons.
ONLY_HERE = ("sm_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct")


class Gpm(object):
    """Two samples of one GPU, or of one MIG device."""

    def __init__(self, asker):
        self._asker = asker
        self._handle = asker.handle  # whose samples are taken
        self._gpu_instance = None
        self._samples = []  # the older one first
        self._metrics = None  # the struct of the call, filled once
        self._refused = False
        self._taken = 0

    def of_instance(self, whole, gpu_instance):
        """Take the samples of a MIG device: the GPU instance of the GPU behind `whole`, an Asker."""
        self._handle, self._gpu_instance = whole.handle, gpu_instance

    @property
    def is_pending(self):
        """Whether there is one sample, and the next one will tell."""
        return not self._refused and self._taken == 1

    def forget(self):
        self._refused = False

    def read(self):
        """{field: value} since the last call; {} at the first one. Raises Lost."""
        if self._refused:
            return {}
        nvml = self._asker.nvml
        try:
            if self._metrics is None:
                self._prepare(nvml)
            newest = self._take(nvml)
            if newest < 2:
                return {}
            return self._compare(nvml)
        except AttributeError:
            self._refused = True
            self._asker.refuse(ONLY_HERE, "this binding has no GPM")
        except nvml.NVMLError as error:
            self._asker.fail(ONLY_HERE, getattr(error, "value", None), str(error))
            self._refused = self._asker.gave_up(ONLY_HERE[0])
        return {}

    def _prepare(self, nvml):
        support = nvml.nvmlGpmQueryDeviceSupport(self._handle)
        if not support.isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        while len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        self._taken = 0
        metrics = nvml.c_nvmlGpmMetricsGet_t()
        metrics.version = nvml.NVML_GPM_METRICS_GET_VERSION
        metrics.numMetrics = len(METRICS)
        for place, (_, number, _) in enumerate(METRICS):
            metrics.metrics[place].metricId = number
        self._places = [metrics.metrics[place] for place in range(len(METRICS))]
        self._metrics = metrics

    def _take(self, nvml):
        """Put a new sample in the place of the older one; how many have been taken."""
        self._samples.reverse()
        if self._gpu_instance is None:
            nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        else:
            nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, self._samples[1])
        self._taken += 1
        return self._taken

    def _compare(self, nvml):
        self._metrics.sample1, self._metrics.sample2 = self._samples
        nvml.nvmlGpmMetricsGet(self._metrics)
        found = {}
        for place, (field, _, factor) in enumerate(METRICS):
            metric = self._places[place]
            if metric.nvmlReturn == 0:
                value = metric.value
                if value == value and value >= 0:  # not a number: the engine has no answer for this interval
                    found[field] = round(value * factor, 2)
            elif field in ONLY_HERE:
                self._asker.unsupported.setdefault(field, str(nvml.NVMLError(metric.nvmlReturn)))
        return found

    def close(self):
        """Give the samples back to the driver."""
        nvml = self._asker.nvml
        for sample in self._samples:
            try:
                nvml.nvmlGpmSampleFree(sample)
            except nvml.NVMLError:
                pass  # the GPU is gone, and its samples with it
        self._samples, self._metrics = [], None
