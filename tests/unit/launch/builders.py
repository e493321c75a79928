"""Builders of node facts and of node answers for job launches."""

from __future__ import annotations

from gconsole.core.job_protocol import Readiness
from gconsole.launch.node_capacity import GpuCapacity, NodeCapacity

GIB = 1 << 30


def a_gpu(node: str, index: int, why_not: str | None = None, mem_gib: int = 80) -> GpuCapacity:
    return GpuCapacity(index, f"GPU-{node}-{index}", mem_gib * GIB, why_not)


def a_node(number: int, gpus: int = 8, taken: int = 0, **fields: object) -> NodeCapacity:
    """A node with `gpus` GPUs, of which the first `taken` are in use."""
    name = f"node{number:03}"
    given = tuple(a_gpu(name, index, "in use by pid 7 (python)" if index < taken else None) for index in range(gpus))
    return NodeCapacity(name=name, **{"gpus": given, "mem_available_bytes": 900 * GIB, "cpu_pct": 3.0,
                                   "versions": ("570.1", "12.8", "x86_64"), **fields})  # fmt: skip


def an_answer(number: int, **fields: object) -> Readiness:
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    return Readiness(**{
        "workdir": "/home/me", "problems": (), "port": 29500, "ssh_address": address, "disk_free_bytes": 500 * GIB,
        "addresses": (("lo", "127.0.0.1", 8), ("docker0", "172.17.0.1", 16), ("eth0", address, 16)), **fields,
    })  # fmt: skip


def answers(nodes: list[NodeCapacity], **fields: object) -> dict[str, Readiness]:
    return {node.name: an_answer(int(node.name[4:]), **fields) for node in nodes}
