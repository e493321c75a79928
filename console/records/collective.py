"""Collectives: what the ranks' own communication libraries recorded, read from outside during a capture.

Names are PyTorch's (its Flight Recorder); what other sources say (NCCL RAS, NCCL's log, NCCL Inspector) is put into the
same form. A field that a source does not have is None.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Int, Record
from .stack import StackFrame

CollectiveSource = Literal[
    "worker_server",  # the Flight Recorder of a rank, by its torch.distributed worker server
    "fr_dump",  # a file that the Flight Recorder wrote
    "ras",  # NCCL's RAS service
    "nccl_log",  # COLL lines of NCCL_DEBUG=INFO
    "inspector",  # NCCL Inspector: completed operations only
]

FlightStatus = Literal[
    "ok",
    "no_permission",  # the kernel refused, or it belongs to somebody else
    "gone",  # the rank ended before or while it was read
    "timed_out",
    "refused",  # it is there and does not answer, or answers with an error
    "unreadable",  # what was read made no sense
    "stale",  # a file from before the rank was started
    "elsewhere",  # in another network namespace, or about another job
]


class Collective(Record, tag="collective", kw_only=True):
    """One operation of one rank, as a source recorded it.

    `collective_seq_id` counts the collectives of a group; `p2p_seq_id` those of a pair of ranks. Of Inspector it counts
    the operations of one name within the group. Instants are CLOCK_REALTIME of the node, ns. A rank is waiting in an
    operation while `retired` is False; gloo leaves `state` at `scheduled` for ever.
    """

    capture: str  # id, the same on all nodes
    source: CollectiveSource
    job: str
    attempt: Count = 0
    rank: Count | None  # of the job; None where nothing tells it
    pid: Count | None = None
    start_ticks: Count | None = None
    read_at: Int | None = None  # when the source was read, or its file written; None: unknown
    version: str | None = None  # of the source's format
    record_id: Count | None = None  # counts all operations of the process
    pg_id: Count | None = None  # number of the group within the process: not the same on other ranks
    process_group: tuple[str, str] | None = None  # name and description; the name is the same on all ranks
    group_rank: Count | None = None  # the rank's number within the group, where the source says that
    group_size: Count | None = None
    collective_seq_id: Count | None = None
    p2p_seq_id: Count | None = None
    op_id: Count | None = None
    profiling_name: str  # `nccl:all_reduce`, `nccl:send 1->2` (ranks of the group), `gloo:barrier`, `nccl:AllReduce`
    is_p2p: bool = False
    input_sizes: tuple[tuple[Count, ...], ...] | None = None  # the first tensors' shapes
    output_sizes: tuple[tuple[Count, ...], ...] | None = None
    input_dtypes: tuple[str, ...] | None = None
    output_dtypes: tuple[str, ...] | None = None
    input_numel: Count | None = None  # elements of all tensors together
    output_numel: Count | None = None
    msg_size_bytes: Count | None = None  # as the source itself says it
    state: str | None = None  # scheduled, started, completed
    retired: bool | None = None  # True once it is over; None where the source cannot tell
    time_created_ns: Int | None = None  # when it was enqueued
    time_discovered_started_ns: Int | None = None
    time_discovered_completed_ns: Int | None = None
    duration_ms: float | None = None  # on the device; with TORCH_NCCL_ENABLE_TIMING
    busbw_gbs: float | None = None  # bus bandwidth as Inspector has it, GB/s
    timeout_ms: Count | None = None
    thread_name: str | None = None
    frames: tuple[StackFrame, ...] | None = None  # who called, outermost first; not in the JSON form


class PgStatus(Record, tag="pg_status", kw_only=True):
    """How far one process group is on one rank; or, without a group, why a source that is there said nothing.

    Of RAS a record is about a rank anywhere in the job, which it knows by `host` and pid. `last_*` are sequence numbers
    of collectives, None before the first.
    """

    capture: str
    source: CollectiveSource
    job: str
    attempt: Count = 0
    rank: Count | None
    pid: Count | None = None  # of RAS: as that rank's own PID namespace counts
    start_ticks: Count | None = None
    status: FlightStatus = "ok"
    reason: str | None = None  # what happened, where the status is not ok; or what part was left out
    try_: str = ""
    read_at: Int | None = None
    took_ns: Count | None = None  # from asking to the last byte
    size_bytes: Count | None = None  # of what was read
    version: str | None = None
    pg_id: Count | None = None
    process_group: tuple[str, str] | None = None
    ranks: tuple[Count, ...] | None = None  # members, as ranks of the job; None: the source does not say
    last_enqueued_collective: Count | None = None
    last_started_collective: Count | None = None
    last_completed_collective: Count | None = None
    oldest_record_id: Count | None = None  # above 0 the buffer has wrapped: what is not in it may have been
    entries: Count | None = None  # operations in the buffer
    entries_sent: Count | None = None  # those that became `collective` records
    group_rank: Count | None = None
    group_size: Count | None = None
    host: str | None = None  # of RAS: the address of that rank's node
    op_counts: dict[str, Count] = msgspec.field(default_factory=dict)  # of RAS: operations launched, by name
    group_state: str | None = None  # of RAS: running, init, finalize, abort, unresponsive, considered_dead, error N
