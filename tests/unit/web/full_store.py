"""A store with one entity of every kind and all of its metrics."""

from __future__ import annotations

from typing import Any

import msgspec

from gconsole.core.store import Store
from gconsole.launch.state import job_statuses
from gconsole.records import (
    AgentCost,
    ClockNode,
    ConsoleRecord,
    Finding,
    Gpu,
    GpuInfo,
    GpuProcess,
    Host,
    Job,
    JobNode,
    Nic,
    Node,
    NodeState,
    Rank,
    RankStat,
)

#: Console time of all records, ns.
NOW = 1_800_000_000_000_000_000
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def with_every_figure(kind: type[Any], **fields: Any) -> Any:
    """A record with all numeric fields set, but those of a digest."""
    head = {"node": "node1", "agent": "a" * 16, "seq": 1, "t": NOW, "mono": 1, "rx": NOW}
    digest = {"period_s", "samples", "first_mono"}
    for field in msgspec.structs.fields(kind):
        text = str(field.type)
        if field.name not in head.keys() | digest and field.default is None and ("float" in text or "int" in text):
            fields.setdefault(field.name, 1.5 if "float" in text else 2)
    return kind(**{**head, **fields})


def everything() -> Store:
    """One node with one GPU, one port, one rank of one job, a finding, and a clock."""
    store = Store()
    process = {"job": "train-1@10.0.0.1:29500", "rank": 0, "pid": 7, "start_ticks": 5}
    store.apply([
        ConsoleRecord(cluster="pod", version="1", rx=NOW),
        with_every_figure(NodeState, state="ok", error=None),
        with_every_figure(Node, hostname="node1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1,
                          sample_interval_ms=1000),
        with_every_figure(Host), with_every_figure(AgentCost, sample_interval_ms=1000),
        with_every_figure(GpuInfo, index=0, uuid=UUID, name='H100 "SXM"', mem_total_bytes=80 << 30),
        with_every_figure(Gpu, index=0, uuid=UUID, clocks_event_reasons=("sw_power_cap",)),
        with_every_figure(GpuProcess, index=0, uuid=UUID, pid=7, type="compute", job=process["job"], rank=0,
                          rank_source="pid"),
        with_every_figure(Nic, device="mlx5_0", port=1, rdma=True, state="active"),
        with_every_figure(Rank, world_size=1, source="environ", **process),
        with_every_figure(RankStat, state="moving", **process),
        with_every_figure(ClockNode, window_id=1, reference="node1", at_mono=1, method="probe",
                          status="ok", stamps="kernel_rx"),
        with_every_figure(Job, job="train-1", command=("x",), launcher="env", nodes=("node1",), procs_per_node=1,
                          gpus_per_node=1, world_size=1, master_addr="10.0.0.1", master_port=29500, created=NOW),
        with_every_figure(JobNode, job="train-1", index=0, state="running", exit_code=None, signal=None),
        with_every_figure(Finding, id="xid", severity="error", confidence="certain", culprits=("node1:gpu0",), text="x",
                          first_seen=NOW, cleared_at=None),
    ])  # fmt: skip
    assert job_statuses(store)
    return store
