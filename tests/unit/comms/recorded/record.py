"""One rank of a job that fails in a chosen way and dumps its Flight Recorder: `record.py KIND FOLDER`.

Run it three times, with RANK 0 to 2, WORLD_SIZE=3, MASTER_ADDR, MASTER_PORT, and TORCH_FR_BUFFER_SIZE=2000 (6 for
`wrapped`). It ends on its own; some kinds end with a gloo error.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
DUMP_AFTER_S, END_AFTER_S, FOR_EVER_S = 4.0, 1.5, 100.0


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(64)
    pairs = dist.new_group([0, 1], group_desc="pairs") if KIND == "subgroup" else None
    for _ in range(2):
        dist.all_reduce(tensor)
    threading.Thread(target=dump_and_end, args=(rank,), daemon=True).start()
    run_fault(rank, world_size, tensor, pairs)
    time.sleep(FOR_EVER_S)


def run_fault(rank: int, world_size: int, tensor: torch.Tensor, pairs: dist.ProcessGroup | None) -> None:
    match KIND:
        case "missing" if rank != 1:
            dist.all_reduce(tensor)
        case "order":
            dist.broadcast(tensor, 2) if rank == 1 else dist.all_reduce(tensor)
        case "size":
            dist.all_reduce(torch.ones(65 if rank == 2 else 64))
        case "dtype":
            dist.all_reduce(torch.ones(64, dtype=torch.float64 if rank == 2 else torch.float32))
        case "subgroup" if rank != 1:
            dist.all_reduce(tensor, group=pairs if rank == 0 else None)
        case "p2p":
            dist.recv(tensor, (rank - 1) % world_size)
        case "wrapped":
            for _ in range(12 if rank == 1 else 13):
                dist.all_reduce(tensor)
        case "mixed":
            one_of_each(rank, world_size, tensor)


def one_of_each(rank: int, world_size: int, tensor: torch.Tensor) -> None:
    parts = [torch.ones(4) for _ in range(world_size)]
    dist.all_gather(parts, torch.ones(4))
    dist.broadcast(tensor, 0)
    dist.barrier()
    dist.reduce(tensor, 0)
    dist.gather(torch.ones(4), parts if rank == 0 else None, 0)
    dist.scatter(torch.ones(4), parts if rank == 0 else None, 0)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.all_gather_into_tensor(torch.ones(4 * world_size), torch.ones(4))
    dist.all_gather_object([None] * world_size, rank)
    dist.all_to_all([torch.ones(2) for _ in range(world_size)], [torch.ones(2) for _ in range(world_size)])


def dump_and_end(rank: int) -> None:
    time.sleep(DUMP_AFTER_S)
    (FOLDER / f"{KIND}.{rank}.json").write_bytes(_distributed_c10d._dump_fr_trace_json(True, False))
    (FOLDER / f"{KIND}.{rank}.pickle").write_bytes(_distributed_c10d._dump_fr_trace(True, True, False))
    time.sleep(END_AFTER_S)
    os._exit(0)


main()
