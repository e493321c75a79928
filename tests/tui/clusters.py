"""Fake clusters shared by several tests, from 4 to 64 nodes, at a fixed instant."""

from __future__ import annotations

from fake_cluster import SECOND, FakeCluster

from gconsole.records import Gap, Host, Log, Mark, Missing, Node


def clock_cluster() -> FakeCluster:
    """64 nodes whose clocks are compared, and a job on them of which one rank, and all of one node, are late."""
    cluster = FakeCluster(*(f"node{i:03}" for i in range(1, 65)))
    cluster.up()
    cluster.job("llama-70b", 64, per_node=1, step=18_204)
    cluster.snapshots()
    cluster.clocks()
    cluster.snapshots()
    cluster.collectives("llama-70b", 64, {17: 20.0, 5: 2.0, 40: 0.2}, per_node=1)
    cluster.up()
    return cluster


def demo() -> FakeCluster:
    """The cluster of `gconsole demo`: 4 nodes, 8 simulated GPUs each, a ring of 8 moving ranks."""
    cluster = FakeCluster("node1", "node2", "node3", "node4", cluster="demo")
    cluster.up(simulated=True)
    figures = ([97.0, 3.0, 88.0, 100.0], [12.0, 55.0, 74.0], [91.0], [64.0, 0.0, 98.0])
    for name, util in zip(cluster.names, figures, strict=True):
        cluster.gpus(name, simulated=True, util=util)
    cluster.job("demo-ring", 8, per_node=2, launcher="plain")
    return cluster


def jobs_cluster() -> FakeCluster:
    """Four nodes with jobs that gconsole started: running, failed and stopped; and one discovered job."""
    cluster = FakeCluster("node1", "node2", "node3", "node4")
    cluster.up()
    oom = "rank 5 (local rank 1) ended with signal 9; the kernel's OOM killer ended 1 process(es) of its cgroup"
    cluster.order_job("eval-77aa02", "node3", "node4", procs=4, state="completed", exit_code=0, ended=cluster.now_ns)
    cluster.job_on_node("eval-77aa02", "node4", 1, "failed", exit_code=1, reason=oom, ended=cluster.now_ns)
    cluster.order_job(
        "sweep-0b1c2d", "node1", procs=1, launcher="env", state="stopped", signal=15, ended=cluster.now_ns
    )
    cluster.now_ns += 10 * SECOND
    cluster.order_job("train-3f9a1c", procs=8)
    cluster.up()
    cluster.job("train-3f9a1c@10.1.0.1:29517", 32, states={9: "stopped"}, step=812)
    cluster.job("demo-ring@10.1.0.9:29500", 4, per_node=1, launcher="Slurm")
    for rank in range(32):
        node = cluster.names[rank // 8]
        cluster.write_output("train-3f9a1c", node, rank, "step 811 loss 2.33", *(["a slow batch"] if rank == 9 else []),
                             "step 812 loss 2.31")  # fmt: skip
    cluster.write_output("train-3f9a1c", "node2", None, "[W socket.cpp:697] a warning with \x1b[31mcolour\x1b[0m")
    return cluster


def pod(before: FakeCluster | None = None) -> FakeCluster:
    """64 nodes, two of them lost; 512 ranks, one of them stuck in I/O and eight not visible.

    `before`: the same nodes with their samples until then.
    """
    cluster = before or FakeCluster(*(f"node{i:03}" for i in range(1, 65)))
    cluster.up(*(name for name in cluster.names if name != "node033"))
    remedy = "ssh-add ~/.ssh/id_ed25519, or set identity_file in hosts.toml"
    cluster.fail("node033", "auth", "the key was refused", remedy)
    utils = {
        name: [96.0, 98.0, 99.0, 97.0] if i != 18 else [99.0, 98.0, 99.0, 97.0, 12.0]
        for i, name in enumerate(cluster.names)
        if name != "node033"
    }
    for name, util in utils.items():
        cluster.gpus(name, util=util)
    absent = range(32 * 8, 33 * 8)
    states = {137: "uninterruptible", 138: "idle"}
    cluster.job("llama-70b", 512, absent=absent, states=states, step=18_204)
    cluster.sample_rank("llama-70b", 137, "node018", "uninterruptible", 18_203)
    cluster.finding("rank_blocked", "error", "rank 137 sleeps in nfs_wait_bit_killable, 41 s", ["rank 137"])
    cluster.finding("gpu_throttle", "warning", "node019 gpu4 hw_thermal_slowdown 38 % of 5 min", ["node019"])
    cluster.advance(12)
    for name, util in utils.items():
        if name != "node044":
            cluster.gpus(name, util=util)
    cluster.up(*(name for name in cluster.names if name not in ("node033", "node044")))
    cluster.lose("node044", "the connection ended")
    return cluster


def busy_cluster(before: FakeCluster | None = None) -> FakeCluster:
    """The pod with events of every kind, and one node with detailed records."""
    cluster = pod(before)
    cluster.detailed_node = "node018"
    for number in (136, 137):
        cluster.process("node018", number, "python train.py --config llama-70b.toml --data /data/web")
    cluster.publish(
        Log(node="node019", source="kernel", severity="error", text="NVRM: Xid 79, GPU has fallen off the bus",
            try_="nvidia-smi -r -i 4"),
        Log(node="node002", source="agent", text="py-spy staged"),
        Gap(node="node007", source="buffer", reason="the console was slow", count=1200),
        Mark(text="switched the fabric over"),
        Node(
            node="node018", hostname="pod-a-18.example.org", boot_id="0b9c7d42", kernel="5.15.0-107-generic",
            arch="x86_64", python="3.10.12", os="Ubuntu 22.04.4 LTS", cpus=192, mem_total_bytes=2015 << 30, uid=1000,
            user="ops", pid=4711, sample_interval_ms=1000, ptrace_scope=1, capabilities=("psi", "gpu"),
            missing=(Missing("py-spy", "ptrace is restricted to descendants", "sysctl kernel.yama.ptrace_scope=0"),),
        ),
        Host(
            node="node018", cpu_pct=71.2, load_1m=130.0, mem_used_bytes=1500 << 30, cpu_stall_pct=3.0,
            mem_stall_pct=0.0, io_stall_pct=41.0, disk_read_bytes_s=3.5e6, disk_write_bytes_s=8e8,
            net_rx_bytes_s=1.2e9, net_tx_bytes_s=1.1e9, swap_used_bytes=0, uptime_s=86_400.0 * 12,
        ),
    )  # fmt: skip
    cluster.rank("llama-70b", 9, "node002", 512, status="exited", reason="signal 9", pid=40009)
    return cluster
