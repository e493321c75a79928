"""Every figure that Prometheus gets: its name, unit, meaning, and where it stands in our records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from ...records import metrics
from ...records.metrics import Metric

Kind = Literal["gauge", "counter", "info"]
Figure = int | float | None


@dataclass(frozen=True)
class Family:
    """One name. `unit` is its last part, "" for a number of things; a counter's samples get `_total`."""

    name: str
    help: str
    unit: str = ""
    kind: Kind = "gauge"

    @property
    def sample(self) -> str:
        """The name of its samples."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]


@dataclass(frozen=True)
class MetricColumn:
    """A family whose figure is a field of a record. `times` brings it to its base unit; `label` is one of its own."""

    family: Family
    field: str
    times: float | None = None
    label: str = ""

    @property
    def get(self) -> Callable[[Any], Figure]:
        return attrgetter(self.field)


def _columns(metrics: Iterable[Metric]) -> tuple[MetricColumn, ...]:
    """The families of a catalogue's metrics; those that a label tells apart share one."""
    return tuple(
        MetricColumn(
            Family(f"gconsole_{name.name}", name.help, name.unit, name.kind), metric.field, name.scale, name.label
        )
        for metric in metrics
        if (name := metric.prometheus) is not None
    )


# -- GPUs: labels node, gpu, uuid --------------------------------------------------------------------------------------

GPU_UP: Final = Family("gconsole_gpu_up", "1 while the driver reaches the GPU, 0 once it is lost.")
GPU_INFO: Final = Family("gconsole_gpu", "Who a GPU is.", kind="info")
GPU_RANK: Final = Family("gconsole_gpu_rank", "1 for each rank that uses a GPU: join with it to have job and rank.")
GPU_LIMITED: Final = Family("gconsole_gpu_clocks_limited", "1 while that is a reason why its clocks are below maximum.")

GPU: Final = _columns(metrics.GPU)
GPU_LIMITS: Final = _columns(metrics.GPU_LIMITS)

# -- nodes: label node -------------------------------------------------------------------------------------------------

NODE_UP: Final = Family("gconsole_node_up", "1 while the node's agent is connected and speaks.")
NODE_INFO: Final = Family("gconsole_node", "Who a node is.", kind="info")
HOST: Final = _columns(metrics.HOST)
AGENT: Final = _columns(metrics.AGENT)
#: Of the newest usable window.
CLOCK: Final = _columns(metrics.CLOCK)

# -- ports: labels node, device, port ----------------------------------------------------------------------------------

NIC_UP: Final = Family("gconsole_nic_up", "1 while the port is up.")
NIC: Final = _columns(metrics.NIC)

# -- jobs and ranks ----------------------------------------------------------------------------------------------------

JOB_RANKS: Final = Family("gconsole_job_ranks", "Ranks of a job in each state.")
JOB_FOUND: Final = Family("gconsole_job_ranks_found", "Ranks of a job that are seen alive.")
JOB_SIZE: Final = Family("gconsole_job_ranks_expected", "Ranks that the job says it has.")
JOB_STATE: Final = Family("gconsole_job_state", "1 for the state of a job that gconsole started.")
#: Labels job, rank, node.
RANK: Final = _columns(metrics.RANK)

# -- the console -------------------------------------------------------------------------------------------------------

FINDINGS: Final = Family("gconsole_findings", "Open findings by id and severity.")
NODES: Final = Family("gconsole_nodes", "Nodes in each state.")
RECORDING: Final = Family("gconsole_recording_bytes", "Bytes of a session that is being recorded.", "bytes")
BUILD: Final = Family("gconsole_build", "Which gconsole this is.", kind="info")
LEFT_OUT: Final = Family("gconsole_series_left_out", "Series that were too many for one scrape.")
PROCESS_CPU: Final = Family("process_cpu_seconds", "CPU of the console.", "seconds", "counter")
PROCESS_MEMORY: Final = Family("process_resident_memory_bytes", "Memory of the console.", "bytes")
