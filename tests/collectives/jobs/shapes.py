"""One training loop per shape of communication, chosen by SHAPE. The rank CULPRIT becomes slow, or hangs.

FAULT_FILE contains `healthy`, `slow` or `hung` and is read at each step, so that one start serves all three. With
RECORDER every rank has a worker server, so that its Flight Recorder can be read. The fault is in `load_batch`, which a
stage of a pipeline calls in each of its forward passes; `extra` and `swapped` are faults of order.
"""

import contextlib
import os
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

CULPRIT = int(os.environ["CULPRIT"])
#: Seconds: the ordinary work of a step, and what the slow rank needs in addition.
WORK_S, EXTRA_S = 0.01, 0.08
READY_STEP = 4
MICRO_BATCHES, STAGES = 4, 4


def fault():
    """What this rank is to do now."""
    if dist.get_rank() != CULPRIT:
        return "healthy"
    with open(os.environ["FAULT_FILE"]) as file:
        return file.read().strip()


def load_batch(share=1.0):
    """The work of a step that is not communication, and the fault of the culprit; `share` of a step."""
    now = fault()
    if now == "hung":
        path = os.path.join(tempfile.mkdtemp(), "shard.bin")
        os.mkfifo(path)
        with open(path, "rb") as shard:
            shard.read()
    time.sleep(share * (WORK_S + (EXTRA_S if now == "slow" else 0.0)))


def mesh_of(*names, sizes=None):
    """The groups of this rank in a mesh, of two ranks in each dimension but the first, or of these sizes.

    With DEVICE_MESH from torch's DeviceMesh, which needs all of torch; else the same groups by `new_group`.
    """
    world = dist.get_world_size()
    sizes = sizes or (world >> (len(names) - 1), *[2] * (len(names) - 1))
    if os.environ.get("DEVICE_MESH"):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        return [mesh.get_group(name) for name in names]
    ranks, groups = torch.arange(world).reshape(sizes), []
    for dimension, name in enumerate(names):
        rows = ranks.movedim(dimension, -1).reshape(-1, sizes[dimension]).tolist()
        made = [dist.new_group(row, group_desc=f"mesh_{name}") for row in rows]
        groups.append(next(group for group, row in zip(made, rows, strict=True) if dist.get_rank() in row))
    return groups


def data_tensor():
    data, tensor = mesh_of("dp", "tp")

    def train():
        load_batch()
        for _ in range(4):
            dist.all_reduce(torch.ones(64), group=tensor)
        dist.all_reduce(torch.ones(256), group=data)

    return train


def extra():
    """The culprit reduces once more in its tensor group, while its peer goes on to the group of all."""
    _, tensor = mesh_of("dp", "tp")

    def train():
        time.sleep(WORK_S)
        dist.all_reduce(torch.ones(64), group=tensor)
        if fault() == "hung":
            dist.all_reduce(torch.ones(64), group=tensor)
        dist.all_reduce(torch.ones(256))

    return train


def swapped():
    """The culprit enters its two groups in the other order."""
    _, tensor = mesh_of("dp", "tp")

    def train():
        time.sleep(WORK_S)
        for group in (None, tensor) if fault() == "hung" else (tensor, None):
            dist.all_reduce(torch.ones(64), group=group)

    return train


def mesh_3d():
    pipeline, data, tensor = mesh_of("pp", "dp", "tp")
    stages = dist.get_process_group_ranks(pipeline)

    def train():
        hidden = torch.ones(64)
        if dist.get_rank() != stages[0]:
            dist.recv(hidden, stages[0], group=pipeline)
        load_batch()
        for _ in range(2):
            dist.all_reduce(hidden, group=tensor)
        if dist.get_rank() == stages[0]:
            dist.send(hidden, stages[1], group=pipeline)
        dist.all_reduce(torch.ones(256), group=data)

    return train


class Stage:
    """One stage of a pipeline of four, in each of the data-parallel replicas."""

    def __init__(self):
        self.data, self.pipeline = mesh_of("dp", "pp", sizes=(dist.get_world_size() // STAGES, STAGES))
        members = dist.get_process_group_ranks(self.pipeline)
        self.number, self.last = members.index(dist.get_rank()), STAGES - 1
        self.before = members[self.number - 1] if self.number else None
        self.after = members[self.number + 1] if self.number < self.last else None
        self.sent = []

    def forward(self):
        hidden = torch.ones(64)
        if self.before is not None:
            dist.recv(hidden, self.before, group=self.pipeline)
        load_batch(1 / MICRO_BATCHES)
        if self.after is not None:
            self.sent.append((dist.isend(hidden, self.after, group=self.pipeline), hidden))

    def backward(self):
        gradient = torch.ones(64)
        if self.after is not None:
            dist.recv(gradient, self.after, group=self.pipeline)
        if self.before is not None:
            self.sent.append((dist.isend(gradient, self.before, group=self.pipeline), gradient))

    def finish(self):
        while self.sent:
            self.sent.pop()[0].wait()
        dist.all_reduce(torch.ones(256), group=self.data)


def gpipe():
    stage = Stage()

    def train():
        for _ in range(MICRO_BATCHES):
            stage.forward()
        for _ in range(MICRO_BATCHES):
            stage.backward()
        stage.finish()

    return train


def one_f_one_b():
    stage = Stage()
    warm_up = min(MICRO_BATCHES, stage.last - stage.number)

    def train():
        for _ in range(warm_up):
            stage.forward()
        for number in range(MICRO_BATCHES):
            if number < MICRO_BATCHES - warm_up:
                stage.forward()
            stage.backward()
        stage.finish()

    return train


def interleaved():
    """Each rank has two chunks of the model: micro-batches pass the ring of stages twice."""
    stage = Stage()
    members = dist.get_process_group_ranks(stage.pipeline)
    before, after = members[stage.number - 1], members[(stage.number + 1) % len(members)]

    def train():
        for chunk in range(2):
            for _ in range(MICRO_BATCHES):
                hidden = torch.ones(64)
                if chunk or stage.number:
                    dist.recv(hidden, before, group=stage.pipeline)
                load_batch(0.5 / MICRO_BATCHES)
                if not chunk or stage.number < stage.last:
                    stage.sent.append((dist.isend(hidden, after, group=stage.pipeline), hidden))
        stage.finish()

    return train


def batched_p2p():
    rank, world = dist.get_rank(), dist.get_world_size()

    def train():
        load_batch()
        halo = torch.ones(64)
        operations = [
            dist.P2POp(dist.isend, torch.ones(64), (rank + 1) % world),
            dist.P2POp(dist.irecv, halo, (rank - 1) % world),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        dist.all_reduce(torch.ones(64))

    return train


def mixed_p2p():
    rank, world = dist.get_rank(), dist.get_world_size()

    def train():
        load_batch()
        handle = dist.isend(torch.ones(64), rank + 1) if rank % 2 == 0 and rank + 1 < world else None
        if rank % 2:
            dist.recv(torch.ones(64), rank - 1)
        if handle is not None:
            handle.wait()
        dist.all_reduce(torch.ones(128))
        dist.broadcast(torch.ones(16), 0)

    return train


def coalesced():
    def train():
        load_batch()
        dist.all_reduce_coalesced([torch.ones(64), torch.ones(32), torch.ones(16)])
        dist.all_reduce(torch.ones(8))

    return train


def all_to_all():
    world = dist.get_world_size()

    def train():
        load_batch()
        dist.all_to_all_single(torch.ones(8 * world), torch.ones(8 * world))
        dist.all_reduce(torch.ones(8))

    return train


def uneven_splits():
    rank, world = dist.get_rank(), dist.get_world_size()
    given = [4 + (rank + other) % 3 for other in range(world)]  # symmetric: what a pair sends each other is equal

    def train():
        load_batch()
        dist.all_to_all_single(torch.ones(sum(given)), torch.ones(sum(given)), given, given)
        dist.all_gather([torch.ones(4) for _ in range(world)], torch.ones(4))
        dist.all_reduce(torch.ones(8))

    return train


def barriers():
    def train():
        load_batch()
        dist.all_reduce(torch.ones(64))
        dist.barrier()

    return train


def objects():
    world = dist.get_world_size()

    def train():
        load_batch()
        dist.all_gather_object([None] * world, {"loss": 0.5})
        dist.broadcast_object_list([0.5], src=0)
        dist.all_reduce(torch.ones(64))

    return train


def monitored_barrier():
    def train():
        load_batch()
        dist.monitored_barrier(timeout=timedelta(hours=1))
        dist.all_reduce(torch.ones(64))

    return train


def hsdp():
    """Shards are gathered and reduced within a group of two, and the gradients of shards between the groups."""
    replicas, shards = mesh_of("replicate", "shard")

    def train():
        load_batch()
        for _ in range(2):
            dist.all_gather([torch.ones(32), torch.ones(32)], torch.ones(32), group=shards)
        dist.reduce_scatter(torch.ones(32), [torch.ones(32), torch.ones(32)], group=shards)
        dist.all_reduce(torch.ones(32), group=replicas)

    return train


def split_groups():
    """Groups from `split_group`, or from `new_subgroups` where the backend cannot split."""
    world = dist.get_world_size()
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    try:
        half = dist.split_group(split_ranks=halves, group_desc="half")
    except (RuntimeError, AttributeError):
        half, _ = dist.new_subgroups_by_enumeration(halves)

    def train():
        load_batch()
        for _ in range(3):
            dist.all_reduce(torch.ones(64), group=half)
        dist.all_reduce(torch.ones(256))

    return train


def other_group_order():
    """Neighbours share a group, in a ring: even ranks create that with the next rank first, odd ones that before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = {"next": [rank, (rank + 1) % world], "before": [(rank - 1) % world, rank]}
    made = {}
    for side in ("before", "next") if rank % 2 else ("next", "before"):
        made[side] = dist.new_group(sorted(pairs[side]), use_local_synchronization=True, group_desc="neighbours")

    def train():
        load_batch()
        for side in ("before", "next") if rank % 2 else ("next", "before"):
            dist.all_reduce(torch.ones(64), group=made[side])
        dist.all_reduce(torch.ones(64))

    return train


def bucketed():
    """Gradients in 25 buckets."""

    def train():
        load_batch()
        handles = [dist.all_reduce(torch.ones(64), async_op=True) for _ in range(25)]
        for handle in handles:
            handle.wait()

    return train


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    with contextlib.ExitStack() as stack:
        if os.environ.get("RECORDER"):
            from torch._C._distributed_c10d import _WorkerServer

            stack.callback(_WorkerServer("::", 0).shutdown)
        train = globals()[os.environ["SHAPE"]]()
        for step in range(10**9):
            if step == READY_STEP:
                sys.stdout.write(f"READY rank={dist.get_rank()} pid={os.getpid()}\n")
                sys.stdout.flush()
            train()


main()
