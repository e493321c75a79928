"""Metric families with names, units and record fields; and the text format: OpenMetrics 1.0, or the older one.

The writer is our own because prometheus_client takes several times as long for a large fleet (`make bench`); its parser
reads the result in the tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ..records import metrics
from ..records.metrics import Metric

Kind = Literal["gauge", "counter", "info"]
Figure = int | float | None


class Family(msgspec.Struct, frozen=True):
    """One metric family. `unit` is the last part of its name, "" for counts; a counter's samples get `_total`."""

    name: str
    help: str
    unit: str = ""
    kind: Kind = "gauge"

    @property
    def sample(self) -> str:
        """Name of its samples."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]


class MetricColumn(NamedTuple):
    """A field of a record as samples of a family: its getter, the factor to the base unit, an additional label."""

    get: Callable[[Any], Figure]
    times: float | None
    label: str


def _columns(metrics: Iterable[Metric]) -> Mapping[Family, Sequence[MetricColumn]]:
    """The columns of a catalogue's metrics by family; metrics that differ in a label share one."""
    columns: dict[Family, list[MetricColumn]] = defaultdict(list)
    for metric in metrics:
        if (name := metric.prometheus) is not None:
            family = Family(f"gconsole_{name.name}", name.help, name.unit, name.kind)
            columns[family].append(MetricColumn(attrgetter(metric.field), name.scale, name.label))
    return columns


# -- GPUs: labels node, gpu, uuid --------------------------------------------------------------------------------------

GPU_UP: Final = Family("gconsole_gpu_up", "1 while the GPU's figures arrive, 0 once it is lost, unusable or hung.")
GPU_INFO: Final = Family("gconsole_gpu", "Identity of a GPU.", kind="info")
GPU_RANK: Final = Family("gconsole_gpu_rank", "1 for each rank that uses a GPU; join on it for job and rank.")
GPU_LIMITED: Final = Family("gconsole_gpu_clocks_limited", "1 for each reason why the clocks are below maximum.")

GPU: Final = _columns(metrics.GPU)
GPU_LIMITS: Final = _columns(metrics.GPU_LIMITS)

# -- nodes: label node -------------------------------------------------------------------------------------------------

NODE_UP: Final = Family("gconsole_node_up", "1 while the node's agent is connected; its GPUs: gconsole_node_gpus.")
NODE_GPUS: Final = Family("gconsole_node_gpus", "Usable GPUs of a node; 0 while its driver cannot be used.")
NODE_GPUS_EXPECTED: Final = Family("gconsole_node_gpus_expected", "GPUs of a node by its driver and its kernel.")
NODE_GPU_FAULT: Final = Family("gconsole_node_gpu_fault", "1 for the reason why no GPU of a node can be read.")
NODE_INFO: Final = Family("gconsole_node", "Identity of a node.", kind="info")
HOST: Final = _columns(metrics.HOST)
AGENT: Final = _columns(metrics.AGENT)
#: Of the latest usable clock window.
CLOCK: Final = _columns(metrics.CLOCK)

# -- ports: labels node, device, port ----------------------------------------------------------------------------------

NIC_UP: Final = Family("gconsole_nic_up", "1 while the port is up.")
NIC: Final = _columns(metrics.NIC)

# -- jobs and ranks ----------------------------------------------------------------------------------------------------

JOB_RANKS: Final = Family("gconsole_job_ranks", "Ranks of a job in each state.")
JOB_FOUND: Final = Family("gconsole_job_ranks_found", "Ranks of a job that were detected.")
JOB_SIZE: Final = Family("gconsole_job_ranks_expected", "World size of a job.")
JOB_STATE: Final = Family("gconsole_job_state", "1 for the state of a job that gconsole started.")
#: Labels job, rank, node.
RANK: Final = _columns(metrics.RANK)

# -- the console -------------------------------------------------------------------------------------------------------

FINDINGS: Final = Family("gconsole_findings", "Open findings by id and severity.")
NODES: Final = Family("gconsole_nodes", "Nodes in each state of their connection, whatever the state of their GPUs.")
RECORDING: Final = Family("gconsole_recording_bytes", "Bytes of a session in recording.", "bytes")
BUILD: Final = Family("gconsole_build", "Version of gconsole.", kind="info")
LEFT_OUT: Final = Family("gconsole_series_left_out", "Series dropped because of the limit per scrape.")
PROCESS_CPU: Final = Family("process_cpu_seconds", "CPU time of the console.", "seconds", "counter")
PROCESS_MEMORY: Final = Family("process_resident_memory_bytes", "Resident memory of the console.", "bytes")


OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Characters of a label value; the rest is cut off.
_MAX_LABEL: Final = 200
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

#: One sample without its name: `{node="a"} 1` and a newline.
Sample = str


def wanted_format(accept: str) -> str:
    """Content type for an Accept header."""
    return OPENMETRICS if "application/openmetrics-text" in accept.lower() else PLAIN


def labels(**named: object) -> str:
    """`node="a",gpu="0"`, with escaped values."""
    return ",".join(f'{name}="{value_text(str(value))}"' for name, value in named.items())


def value_text(text: str) -> str:
    """An escaped label value."""
    if len(text) <= _MAX_LABEL and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return "".join(c if c.isprintable() else "�" for c in text[:_MAX_LABEL]).translate(_ESCAPES)


def sample(value: int | float | str, text: str = "") -> Sample:
    """A sample with this value and label text."""
    return f"{{{text}}} {value}\n" if text else f" {value}\n"


def heading(family: Family, media: str) -> str:
    """HELP, TYPE and UNIT lines of a family."""
    help_ = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    if media is PLAIN:
        kind = "counter" if family.kind == "counter" else "gauge"
        return f"# HELP {family.sample} {help_}\n# TYPE {family.sample} {kind}\n"
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# HELP {family.name} {help_}\n# TYPE {family.name} {family.kind}\n{unit}"


def block(family: Family, samples: Sequence[Sample], media: str) -> bytes:
    """A family with its samples; empty without samples."""
    if not samples:
        return b""
    name = family.sample
    return "".join((heading(family, media), name, name.join(samples))).encode(errors="replace")


def end(media: str) -> bytes:
    """End of the whole text."""
    return b"# EOF\n" if media is OPENMETRICS else b""
