"""Synthetic dumps, answers and logs, written after the sources of the libraries."""

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
DEFAULT_PG = ["0", "default_pg"]


def an_entry(seq: int, name: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    """One operation as torch 2.5 to 2.13 dumps it."""
    numel = more.pop("numel", 64)
    return {
        "record_id": more.pop("record_id", seq - 1), "pg_id": 0, "process_group": DEFAULT_PG, "collective_seq_id": seq,
        "p2p_seq_id": 0, "op_id": seq, "profiling_name": name, "time_created_ns": 1_000_000_000 * seq,
        "input_sizes": [[numel]], "input_dtypes": ["Float"], "output_sizes": [[numel]], "output_dtypes": ["Float"],
        "state": "completed", "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": True, "timeout_ms": 600_000, "is_p2p": False, **more,
    }  # fmt: skip


def waiting(seq: int, name: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    """An operation that was entered and has not completed."""
    return an_entry(seq, name, **{"state": "started", "retired": False, **more})


def a_dump(
    entries: list[dict[str, Any]], version: str = "2.10", ranks: Any = "[0, 1, 2]", **more: Any
) -> dict[str, Any]:
    """A dump of one rank in the default group, with counters as in the JSON form."""
    last = max((entry["collective_seq_id"] for entry in entries), default=-1)
    return {
        "version": version, "entries": entries,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": str(last), "last_started_collective": "-1",
                            "last_completed_collective": "-1"}},
        **more,
    }  # fmt: skip


def a_ras_rank(rank: int, count: int = 7, **more: Any) -> dict[str, Any]:
    """One responding rank of a communicator."""
    return {
        "rank": rank, "host": f"10.0.0.{rank + 1}", "pid": 100 + rank, "cuda_dev": 0, "nvml_dev": 0,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                   "abort_flag": False},
        "collective_counts": {"Broadcast": 1, "AllReduce": count}, **more,
    }  # fmt: skip


def a_missing_ras_rank(rank: int, dead: bool) -> dict[str, Any]:
    """One rank that does not respond."""
    return {
        "rank": rank, "host": f"10.0.0.{rank + 1}", "pid": 100 + rank, "cuda_dev": 0, "nvml_dev": 0,
        "status": {"unresponsive": True, "considered_dead": dead},
    }  # fmt: skip


def a_ras_answer(ranks: list[dict[str, Any]], missing: list[dict[str, Any]] = (), version: str = "2.30.7") -> bytes:  # type: ignore[assignment]
    """JSON of RAS in NCCL's layout; version 2.28.9 lacks a comma."""
    document = {
        "nccl_version": version, "cuda_runtime_version": 12080, "cuda_driver_version": 12080,
        "timestamp": "2026-01-02 03:04:05", "communicators_count": 1,
        "communicators": [{
            "hash": "0x8c1f0a", "secondary_hash": "0x1:0x2", "size": len(ranks) + len(missing),
            "ranks_count": len(ranks), "missing_ranks_count": len(missing), "ranks": ranks,
            "missing_ranks": list(missing),
        }],
        "ras": {"collection_time_sec": 0.012, "timeouts_count": 0},
    }  # fmt: skip
    text = json.dumps(document, indent=2)
    if version.startswith("2.28.9"):
        head, _, tail = text.partition('"missing_ranks": [')
        text = head + '"missing_ranks": [' + tail.replace('"nvml_dev": 0,\n', '"nvml_dev": 0\n')
    return text.encode() + b"\n"


#: Text of NCCL 2.24 for four ranks of which one is behind; layout after src/ras/client_support.cc.
RAS_TEXT = b"""NCCL version 2.24.3 compiled with CUDA 12.4
CUDA runtime version 12040, driver version 12040

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  MISMATCH

Errors
======

#0-0 (0000000000008c1f) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 1 managed by process 203 on node 10.0.0.2

Warnings
========

#0-0 (0000000000008c1f) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 12
  Rank 2 has launched up to operation 11 -- GPU 0 managed by process 202 on node 10.0.0.2

"""

NCCL_LOG = """node1:4711:4711 [0] NCCL INFO ncclCommInitRank comm 0x5581aa rank 0 nranks 2 cudaDev 0 nvmlDev 0 \
busId 1a000 commId 0x8c1f - Init COMPLETE
node1:4711:4711 [0] NCCL INFO AllReduce: opCount 9 sendbuff 0x7f1 recvbuff 0x7f2 count 1024 datatype 7 op 0 root 0 \
comm 0x5581aa [nranks=2] stream 0x55
2026-01-02T03:04:05 node1:4711:4711 [0] NCCL INFO AllReduce: opCount a sendbuff 0x7f1 recvbuff 0x7f2 count 2048 \
datatype 9 op 0 root 0 comm 0x5581aa [nranks=2] stream 0x55
node1:4711:4711 [0] NCCL INFO Send: opCount b sendbuff 0x7f1 recvbuff (nil) count 16 datatype 7 op 0 root 1 comm \
0x5581aa [nranks=2] stream 0x55
node1:4712:4712 [1] NCCL INFO Broadcast: opCount 3 sendbuff 0x1 recvbuff 0x2 count 5 datatype 99 op 0 root 0 \
comm 0xdead stream 0x55
step 12 loss 3.4
"""


def an_inspector_line(sn: int, rank: int = 0, op: str = "AllReduce", took_us: float = 500.0, **perf: Any) -> str:
    """One line of an Inspector log, version 4."""
    return json.dumps({
        "header": {"id": "0x8c1f", "comm_name": "dp", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "",
                     "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": 1748030377748202,
                     "hostname": f"node{rank}", "pid": 4711 + rank},
        "coll_perf": {"coll": op, "coll_sn": sn, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": took_us,
                      "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 2.0, "coll_busbw_gbs": 3.5, **perf},
    })  # fmt: skip
