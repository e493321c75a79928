"""A node: its state as the console sees it, its identity, and the figures of the whole machine."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Int, Missing, Record

State = Literal["expected", "connecting", "ok", "lost", "failed", "removed"]


class Failure(msgspec.Struct, frozen=True):
    """Why a node, or one thing asked of it, failed; `name` is stable and short (`auth`, `refused`, `no_python`, …)."""

    name: str
    text: str
    try_: str = msgspec.field(name="try", default="")


class NodeState(Record, tag="node_state", kw_only=True):
    """What the console knows of its link to a node; the console's own record (its `agent` is the console's id).

    `lost` is a node that was `ok` and fell silent or whose connection ended; `failed` one that could not be reached or
    started. Both carry `error`. `retry_at` is None where the console will not try again by itself.
    """

    state: State
    error: Failure | None = None
    attempt: Count = 0  # connection attempts so far
    retry_at: Int | None = None  # console CLOCK_REALTIME ns of the next attempt
    tags: tuple[str, ...] = ()


class Node(Record, tag="node", kw_only=True):
    """Who a node is, once at the start of an agent."""

    hostname: str
    boot_id: str
    kernel: str
    arch: str
    python: str  # version of the interpreter the agent runs on
    os: str | None = None  # PRETTY_NAME of os-release
    cpus: Count | None = None  # logical CPUs the agent may run on
    mem_total_bytes: Count | None = None
    uid: Count
    user: str | None = None
    pid: Count  # of the agent
    sample_interval_ms: Count
    ptrace_scope: Count | None = None  # Yama's setting; None where the kernel has no Yama
    capabilities: tuple[str, ...] = ()  # what works here: "psutil", "psi", "simulate", …
    missing: tuple[Missing, ...] = ()  # what does not, and why
    simulated: bool = False  # true where any part of this node's data is simulated


class Host(Record, tag="host", kw_only=True):
    """CPU, memory, pressure, disk and network of a node at one tick (psutil and /proc/pressure).

    Rates are over the time since the previous tick and None at the first.
    """

    cpu_pct: float | None = None  # all CPUs together, 0 to 100
    load_1m: float | None = None
    mem_used_bytes: Count | None = None  # total minus available
    mem_available_bytes: Count | None = None
    swap_used_bytes: Count | None = None
    cpu_stall_pct: float | None = None  # PSI: share of the last 10 s in which some task waited for a CPU
    mem_stall_pct: float | None = None
    io_stall_pct: float | None = None
    disk_read_bytes_s: float | None = None  # whole physical disks
    disk_write_bytes_s: float | None = None
    net_rx_bytes_s: float | None = None  # physical interfaces; where there are none, all but loopback
    net_tx_bytes_s: float | None = None
    uptime_s: float | None = None
    processes: Count | None = None  # processes visible to the agent
    unreadable: Count | None = None  # Python processes of other users that the agent may not read


class AgentCost(Record, tag="agent_cost", kw_only=True):
    """What the agent itself costs the node, each tick; the first one ends the agent's first full tick."""

    cpu_pct: float | None = None  # of one core, over the time since the previous one
    rss_bytes: Count | None = None
    tx_bytes_s: float | None = None  # what it wrote to its console
    sample_interval_ms: Count  # the interval in force; longer than asked while the agent is over its CPU budget
    hung: tuple[str, ...] = ()  # samplers that have not come back from their last tick
    watch_cpu_pct: float | None = None  # of that, what reading watched variables took, over the last minute
