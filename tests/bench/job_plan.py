"""Cost of planning a job for a large cluster: facts from the store, node selection, the order of each node."""

from __future__ import annotations

import time

from gconsole.core.job_protocol import Readiness
from gconsole.core.store import Store
from gconsole.launch.format import plan_text
from gconsole.launch.node_capacity import node_facts
from gconsole.launch.plan import LaunchPlan, plan
from gconsole.launch.request import JobRequest
from gconsole.records import AgentCost, Finding, Gpu, GpuInfo, GpuProcess, Host, NodeState

from .result import Outcome, Row, middle

NODES, GPUS, RUNS, GOAL_S = 1024, 8, 5, 0.5


def measure(quick: bool) -> Outcome:
    nodes, runs = (64, 2) if quick else (NODES, RUNS)
    store = a_store(nodes)
    wanted = nodes * 7 // 8
    request = JobRequest(("train.py",), nodes=wanted, gpus_per_node=GPUS, min_gpu_mem_bytes=40 << 30)
    ready = {f"node{n:04}": node_answer(n) for n in range(nodes)}
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        launch_plan = plan(request, "train-1", node_facts(store), ready, created=1)
        assert isinstance(launch_plan, LaunchPlan), launch_plan
        assert len(launch_plan.orders) == wanted
        plan_text(launch_plan)
        took.append(time.perf_counter() - began)
    return Outcome(
        [Row(f"plan {wanted} of {nodes} nodes × {GPUS} GPUs", middle(took, "s"), "≤ 0.5 s", max(took) <= GOAL_S)],
        [
            "from a store with all records of the nodes to the plan as text, the nodes' own answers at hand; every"
            " tenth node has a GPU at work, every fiftieth a finding; the worst run decides",
        ],
    )


def a_store(nodes: int) -> Store:
    """Current records of that many nodes, no history."""
    store = Store()
    for number in range(nodes):
        name = f"node{number:04}"
        records = [
            NodeState(node=name, state="ok"), AgentCost(node=name, sample_interval_ms=1000),
            Host(node=name, cpu_pct=number % 90, mem_available_bytes=900 << 30),
        ]  # fmt: skip
        for index in range(GPUS):
            uuid = f"GPU-{number}-{index}"
            records += [
                GpuInfo(node=name, index=index, uuid=uuid, mem_total_bytes=80 << 30, driver="570.1"),
                Gpu(node=name, index=index, uuid=uuid, mem_used_bytes=0),
            ]
        if number % 10 == 0:
            records.append(GpuProcess(node=name, index=0, uuid=f"GPU-{number}-0", pid=7, type="compute"))
        if number % 50 == 1:
            records.append(Finding(id="nic_down", severity="error", confidence="certain", culprits=(f"{name}:mlx5_0",),
                                   text="it is down", first_seen=1))  # fmt: skip
        store.apply(records)
    return store


def node_answer(number: int) -> Readiness:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Readiness("/home/me", (), 29500, (("lo", "127.0.0.1", 8), ("eth0", address, 8)), address, 1 << 40)
