"""Ranks with an unreadable environment are listed as such, and inferred values are marked."""

import os

from fake_proc import torch_rank, watch

OTHER = os.geteuid() + 1001


def test_unreadable_ranks_of_another_users_torchrun_report_a_permission_remedy(proc):
    proc.python(50, "/usr/bin/torchrun --nnodes=1 --nproc-per-node=2 train.py", uid=OTHER, denied=True)
    proc.python(100, ppid=50, uid=OTHER, denied=True)
    proc.python(101, ppid=50, uid=OTHER, denied=True)
    proc.python(102, ppid=101, uid=OTHER, denied=True)

    seen = watch(proc)

    assert {pid: (rank.status, rank.local_rank, rank.rank) for pid, rank in seen.ranks.items()} == {
        100: ("no_permission", 0, 0), 101: ("no_permission", 1, 1),
    }  # fmt: skip
    rank = seen.ranks[100]
    assert (rank.world_size, rank.source, rank.launcher, rank.uid) == (2, "launcher argv (guess)", "torchrun", OTHER)
    for word in ("/proc/100/environ", f"uid {OTHER}", f"uid {os.geteuid()}", 'run_as = "sudo"'):
        assert word in rank.reason
    assert seen.seen.unreadable == 4
    assert seen.stats[100].state == "idle", "its activity is readable by every user"
    assert seen.roles() == {50: "launcher", 100: "rank", 101: "rank", 102: "child"}


def test_rank_numbers_are_not_guessed_when_some_ranks_are_missing(proc):
    proc.python(50, "/usr/bin/torchrun --nproc_per_node 4 train.py", uid=OTHER, denied=True)
    proc.python(100, ppid=50, uid=OTHER, denied=True)

    rank = watch(proc).ranks[100]

    assert (rank.rank, rank.local_rank, rank.world_size) == (None, None, 4)


def test_node_rank_of_a_static_launcher_determines_the_ranks_of_its_node(proc):
    argv = "-m torch.distributed.run --nnodes 2 --nproc_per_node 2 --node_rank 1 --master_addr n0 --master_port 7 t.py"
    proc.python(50, argv, uid=OTHER, denied=True)
    for pid in (100, 101):
        proc.python(pid, ppid=50, uid=OTHER, denied=True)
    proc.python(200, uid=OTHER, env=torch_rank(0, 4, MASTER_ADDR="n0", MASTER_PORT="7"))

    ranks = watch(proc).ranks

    assert (ranks[100].rank, ranks[101].rank, ranks[101].group_rank) == (2, 3, 1)
    assert ranks[100].job == ranks[200].job, "readable and unreadable ranks are one job"


def test_rank_number_is_unknown_below_an_elastic_launcher(proc):
    proc.python(50, "/usr/bin/torchrun --nnodes=1:4 --nproc-per-node=1 t.py", uid=OTHER, denied=True)
    proc.python(100, ppid=50, uid=OTHER, denied=True)

    rank = watch(proc).ranks[100]

    assert (rank.rank, rank.local_rank, rank.world_size) == (None, 0, None)


def test_unreadable_ranks_of_an_srun_step_belong_to_its_slurm_job(proc):
    proc.process(40, "slurmstepd: [77.0]", exe="/usr/sbin/slurmstepd", uid=0, denied=True)
    proc.process(60, "bash -c run", ppid=40, uid=OTHER, denied=True)
    proc.python(100, ppid=60, uid=OTHER, denied=True)
    proc.process(41, "slurmstepd: [78.batch]", exe="/usr/sbin/slurmstepd", uid=0, denied=True)
    proc.python(101, "prepare.py", ppid=41, uid=OTHER, denied=True)

    seen = watch(proc)

    assert {pid: (rank.job, rank.rank, rank.source) for pid, rank in seen.ranks.items()} == {
        100: ("slurm-77.0", None, "parent process"),
    }  # fmt: skip


def test_rank_number_of_an_unreadable_process_is_read_from_its_arguments(proc):
    proc.python(100, "train.py --rank 3 --world_size 8", uid=OTHER, denied=True)

    rank = watch(proc).ranks[100]

    assert (rank.rank, rank.world_size, rank.source, rank.status) == (3, 8, "argv", "no_permission")


def test_torch_thread_names_identify_an_unreadable_rank(proc):
    proc.python(50, "main.py", uid=OTHER, denied=True)
    proc.python(100, "-c spawn_main", ppid=50, uid=OTHER, denied=True, threads=("python", "gloo_tcp_loop"))
    proc.python(101, "-c spawn_main", ppid=100, uid=OTHER, denied=True)

    seen = watch(proc)

    assert {pid: rank.source for pid, rank in seen.ranks.items()} == {100: "thread names"}


def test_unreadable_rank_is_found_by_thread_names_that_appear_later(proc):
    proc.python(100, "main.py", uid=OTHER, denied=True)
    seen = watch(proc)
    assert seen.ranks == {}

    proc.python(100, "main.py", uid=OTHER, denied=True, threads=("python", "pt_nccl_watchdg"))
    for _ in range(32):
        seen.tick()

    assert seen.ranks[100].status == "no_permission"


def test_python_daemon_of_another_user_is_counted_but_is_not_a_rank(proc):
    proc.python(100, "/usr/bin/networkd-dispatcher", uid=0, denied=True)

    seen = watch(proc)

    assert seen.ranks == {}
    assert seen.seen.unreadable == 1


def test_unreadable_process_of_the_same_user_is_reported_as_not_dumpable(proc):
    proc.python(50, "/usr/bin/torchrun train.py")
    proc.python(100, ppid=50, uid=os.geteuid(), denied=True)

    assert "not dumpable" in watch(proc).ranks[100].reason


def test_process_filter_excludes_processes_with_an_unreadable_environment(proc):
    proc.python(50, "/usr/bin/torchrun --nproc_per_node 1 train.py", uid=OTHER, denied=True)
    proc.python(100, ppid=50, uid=OTHER, denied=True)

    assert watch(proc, process_filter=("NODE", "a")).ranks == {}
