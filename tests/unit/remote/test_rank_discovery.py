"""Rank discovery from inherited, late, duplicate and stale environment variables, on a fake /proc."""

import pytest
from fake_proc import KERNEL_THREAD, Watch, torch_rank, watch
from msgspec import structs

from gconsole.analysis.health import health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import Log
from gconsole_remote.comms import nccl_ras
from gconsole_remote.proc.process_facts import ProcessExaminer

LAUNCHERS = {
    "torch": {"RANK": "1", "WORLD_SIZE": "4"},
    "torchrun": {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "llama"},
    "accelerate": {"RANK": "1", "WORLD_SIZE": "4", "ACCELERATE_MIXED_PRECISION": "bf16"},
    "horovod": {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"},
    "jax": {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "4"},
    "openmpi": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    "mvapich2": {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"},
    "pals": {"PALS_RANKID": "1", "PALS_SIZE": "4"},
    "flux": {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"},
    "slurm": {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"},
    "mpich": {"PMI_RANK": "1", "PMI_SIZE": "4"},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_variables_of_every_launcher_identify_a_rank(proc, launcher):
    proc.python(100, env=LAUNCHERS[launcher])

    rank = watch(proc).ranks[100]

    assert (rank.rank, rank.world_size, rank.launcher, rank.source) == (1, 4, launcher, "environ")


def test_torchrun_rank_overrides_slurm_rank_and_launcher_is_not_a_rank(proc):
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    proc.python(50, "/usr/bin/torchrun --nnodes 2 train.py", env=slurm)
    proc.python(100, ppid=50, env={**slurm, **torch_rank(3, 4)})

    seen = watch(proc)

    assert seen.numbers() == {100: 3}
    assert seen.ranks[100].job == "slurm-77.0:29500"
    assert seen.ranks[100].group_rank == 1
    assert seen.roles() == {50: "launcher", 100: "rank"}


def test_launcher_shows_whether_it_has_started_a_process_until_it_has_ranks(proc):
    proc.python(50, "/usr/bin/torchrun --nnodes 2 train.py")
    seen = watch(proc)
    assert seen.processes[50].has_children is False

    proc.process(70, "/bin/bash run.sh", ppid=50)
    seen.tick()
    assert seen.processes[50].has_children is True

    proc.python(100, ppid=70, env=torch_rank(3, 4))
    seen.tick()
    assert (seen.processes[50].has_children, seen.processes[50].job) == (None, seen.ranks[100].job)


def test_parent_of_spawned_ranks_is_a_launcher_despite_its_slurm_rank(proc):
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    proc.python(50, "main.py", env=slurm)
    seen = watch(proc)
    assert seen.numbers() == {50: 0}, "on its own it resembles a rank"

    for local in (0, 1):
        proc.python(100 + local, "-c spawn_main", ppid=50, env={**slurm, **torch_rank(local, 4)})
    seen.tick()

    assert seen.numbers() == {100: 0, 101: 1}
    assert seen.ranks[50].status == "withdrawn"
    assert seen.roles()[50] == "launcher"


def test_spawned_processes_that_set_their_rank_late_become_ranks(proc):
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    proc.python(50, "main.py", env=slurm, start=999_900)
    for local in (0, 1):
        proc.python(100 + local, "-c spawn_main", ppid=50, env=slurm, start=999_900)
    seen = watch(proc)
    assert seen.numbers() == {50: 0}

    for local in (0, 1):
        env = {**slurm, **torch_rank(local, 4)}
        proc.python(100 + local, "-c spawn_main", ppid=50, env=env, start=999_900, env_start=1 + local)
    seen.tick()

    assert seen.numbers() == {100: 0, 101: 1}
    assert seen.roles() == {50: "launcher", 100: "rank", 101: "rank"}


def test_parent_of_a_single_spawned_rank_is_not_a_rank(proc):
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    proc.python(50, "main.py", env=slurm)
    proc.python(100, "-c spawn_main", ppid=50, env={**slurm, **torch_rank(1, 2)})

    assert watch(proc).numbers() == {100: 1}


def test_pod_index_in_rank_variable_is_ignored_when_it_spawns_ranks(proc):
    proc.python(50, "main.py", env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "pod-0", "MASTER_PORT": "23456"})
    for local in range(2):
        proc.python(100 + local, ppid=50, env=torch_rank(local, 4))

    assert watch(proc).numbers() == {100: 0, 101: 1}


def test_rank_that_starts_a_nested_job_remains_a_rank(proc):
    proc.python(100, env=torch_rank(3, 8))
    proc.python(200, "evaluate.py", ppid=100, env=torch_rank(0, 1, MASTER_PORT="1234"))

    assert watch(proc).numbers() == {100: 3, 200: 0}


def test_children_of_a_rank_inherit_its_variables_but_are_not_ranks(proc):
    env = torch_rank(0, 2)
    proc.python(100, env=env)
    proc.python(201, ppid=100, env=env, comm="pt_data_worker")
    proc.python(202, "-m torch._inductor.compile_worker --parent=100", ppid=100, env=env)
    proc.process(203, "/usr/local/cuda/bin/nvcc x.cu", exe="/usr/local/cuda/bin/nvcc", ppid=202, env=env)
    proc.python(204, "-c from_multiprocessing_import_resource_tracker", ppid=201, env=env)
    proc.process(205, "py-spy dump --pid 100", exe="/usr/bin/py-spy", ppid=100, env=env)

    seen = watch(proc)

    assert seen.numbers() == {100: 0}
    assert seen.roles() == {
        100: "rank", 201: "dataloader_worker", 202: "compile_worker", 203: "compile_worker", 204: "child", 205: "child",
    }  # fmt: skip
    assert {process.rank for process in seen.processes.values()} == {0}


def test_child_with_partial_rank_variables_is_not_a_rank(proc):
    proc.python(100, env=torch_rank(3, 8))
    proc.python(200, ppid=100, env={"RANK": "3", "LOCAL_RANK": "3"})

    assert watch(proc).numbers() == {100: 3}


def test_the_shell_around_a_rank_is_not_the_rank(proc):
    env = torch_rank(1, 2)
    proc.python(50, "/usr/bin/torchrun train.py")
    proc.process(60, "bash -c numactl", ppid=50, env=env)
    proc.process(70, "numactl python train.py", exe="/usr/bin/numactl", ppid=60, env=env)
    proc.python(100, ppid=70, env=env)

    seen = watch(proc)

    assert seen.numbers() == {100: 1}
    assert set(seen.processes) == {50, 100}


def test_conda_run_around_a_rank_is_not_the_rank(proc):
    env = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-n1-7@1"}
    proc.python(50, "/opt/conda/bin/conda run -n train python train.py", env=env)
    proc.process(60, "bash /tmp/script", ppid=50, env=env)
    proc.python(100, ppid=60, env=env)

    assert watch(proc).numbers() == {100: 1}


def test_a_worker_whose_rank_has_died_does_not_become_the_rank(proc):
    env = torch_rank(0, 2)
    proc.python(100, env=env)
    proc.python(201, ppid=100, env=env)
    seen = watch(proc)
    seen.tick()

    proc.end(100)
    proc.python(201, ppid=1, env=env)
    for _ in range(40):
        seen.tick()

    assert seen.ranks[100].status == "exited"
    assert 201 not in seen.ranks
    assert (seen.roles()[201], seen.processes[201].rank) == ("child", 0)


def test_jobs_on_one_node_with_different_port_or_user_are_separate(proc):
    proc.python(100, env=torch_rank(0, 2))
    proc.python(101, env=torch_rank(0, 2, MASTER_PORT="29501"))
    proc.python(102, env=torch_rank(0, 4), uid=1001)

    assert len({rank.job for rank in watch(proc).ranks.values()}) == 3


def test_rank_of_an_attempt_before_a_restart_is_stale(proc):
    proc.python(50, "/usr/bin/torchrun train.py")
    proc.python(100, env=torch_rank(0, 2, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0"))
    seen = watch(proc)
    assert seen.ranks[100].status == "present"

    proc.python(200, ppid=50, env=torch_rank(0, 2, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="1"))
    seen.tick()

    assert (seen.ranks[100].status, seen.ranks[100].attempt) == ("stale", 0)
    assert "attempt 0" in seen.ranks[100].reason
    assert (seen.ranks[200].status, seen.ranks[200].attempt) == ("present", 1)


def test_older_attempt_of_an_unnamed_run_is_stale_even_below_a_launcher(proc):
    proc.python(50, "/usr/bin/torchrun train.py")
    for attempt in (0, 1):
        env = torch_rank(0, 2, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=str(attempt))
        proc.python(100 + attempt, ppid=50, env=env)

    assert watch(proc).numbers() == {101: 0}


def test_rank_of_an_old_attempt_is_stale_after_a_master_port_change(proc):
    proc.python(50, "/usr/bin/torchrun train.py")
    old = torch_rank(0, 2, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0", MASTER_PORT="40001")
    new = torch_rank(0, 2, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="1", MASTER_PORT="40002")
    proc.python(100, ppid=1, env=old)
    proc.python(101, ppid=50, env=new)

    assert watch(proc).ranks[100].status == "stale"


def test_two_runs_with_the_same_id_do_not_make_each_other_stale(proc):
    proc.python(50, "/usr/bin/torchrun a.py")
    proc.python(51, "/usr/bin/torchrun b.py")
    old = torch_rank(0, 2, TORCHELASTIC_RUN_ID="100", TORCHELASTIC_RESTART_COUNT="0", MASTER_PORT="40001")
    new = torch_rank(0, 2, TORCHELASTIC_RUN_ID="100", TORCHELASTIC_RESTART_COUNT="1", MASTER_PORT="40002")
    proc.python(100, ppid=50, env=old)
    proc.python(101, ppid=51, env=new)

    assert watch(proc).numbers() == {100: 0, 101: 0}


def test_rank_in_a_container_reports_its_namespace_pid(proc):
    proc.python(4711, env=torch_rank(0, 2), ns_pid=17)

    assert watch(proc).ranks[4711].ns_pid == 17


def test_arguments_identify_a_rank_without_environment_variables(proc):
    proc.python(100, "train.py --rank=3 --world-size 8 --local_rank 1")

    rank = watch(proc).ranks[100]

    assert (rank.rank, rank.world_size, rank.local_rank, rank.source) == (3, 8, 1, "argv")


def test_lora_rank_argument_is_not_a_process_rank(proc):
    proc.python(100, "train_lora.py --rank 16")
    proc.python(101, "train_lora.py --rank 16 --local_rank 0")

    assert watch(proc).ranks == {}


@pytest.mark.parametrize(
    "env",
    [
        {"RANK": "3"},
        {"RANK": "8", "WORLD_SIZE": "8"},
        {"RANK": "-1", "WORLD_SIZE": "8"},
        {"RANK": "²", "WORLD_SIZE": "8"},
        {"RANK": "1" * 40, "WORLD_SIZE": "2" * 40},
        {"RANK": "0", "WORLD_SIZE": "0"},
    ],
)
def test_invalid_rank_variables_identify_no_rank(proc, env):
    proc.python(100, env=env)

    assert watch(proc).ranks == {}


def test_python_in_a_slurm_batch_or_interactive_step_is_not_a_rank(proc):
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}
    proc.python(100, env=batch)
    proc.python(101, env={**batch, "SLURM_STEP_ID": "4294967291"})
    proc.python(102, env={**batch, "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"})

    assert watch(proc).ranks == {}


def test_lightning_main_process_without_a_rank_variable_is_rank_0(proc):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234", "NODE_RANK": "0", "WORLD_SIZE": "2"}
    proc.python(100, env={**env, "LOCAL_RANK": "0"})
    proc.python(101, ppid=100, env={**env, "LOCAL_RANK": "1"})

    assert watch(proc).numbers() == {100: 0, 101: 1}


def test_program_that_loads_libpython_is_recognised_as_a_rank(proc):
    proc.process(100, "/opt/train.bin", exe="/opt/train.bin", env=torch_rank(0, 2))
    (proc.root / "100" / "maps").write_text("7f00-7f01 r-xp 00000000 fe:00 77 /opt/libpython3.11.so.1.0\n")
    proc.process(101, "/opt/mpi_app", exe="/opt/mpi_app", env=torch_rank(1, 2))

    assert watch(proc).numbers() == {100: 0}


@pytest.mark.parametrize(
    ("visible", "gpu"),
    [("0,1,2,3", "2"), ("GPU-a,GPU-b,GPU-c", "GPU-c"), ("7", "7"), ("0,1", None), ("", None), ("NoDevFiles", None)],
)
def test_gpu_of_a_rank_follows_cuda_visible_devices(proc, visible, gpu):
    proc.python(100, env=torch_rank(2, 4, CUDA_VISIBLE_DEVICES=visible))

    assert watch(proc).ranks[100].gpu == gpu


def test_unrelated_processes_produce_no_records(proc):
    for pid in range(1000, 1200):
        proc.process(pid, "/bin/sleep 60", exe="/bin/sleep")
    proc.process(2, "", exe="", comm="kthreadd", flags=KERNEL_THREAD, ppid=0)
    proc.python(100, "serve.py")

    seen = watch(proc)

    assert seen.roles() == {100: "python"}
    assert seen.seen.total == 202


def test_process_filter_selects_processes_with_its_variable_and_their_descendants(proc):
    proc.process(50, "bash", env={"NODE": "a"})
    proc.python(100, ppid=50, env=torch_rank(0, 2))
    proc.python(101, env=torch_rank(1, 2, NODE="a"))
    proc.python(102, env=torch_rank(1, 2, NODE="b"))
    proc.python(103, env=torch_rank(1, 2))

    seen = watch(proc, process_filter=("NODE", "a"))

    assert seen.numbers() == {100: 0, 101: 1}
    assert set(seen.processes) == {100, 101}


def test_young_shell_that_execs_a_rank_is_found_at_the_next_tick(proc):
    env = torch_rank(0, 2)
    proc.process(100, "bash start.sh", env=env, start=999_900)
    seen = watch(proc)
    assert seen.ranks == {}

    proc.python(100, env=env, start=999_900)
    seen.tick()

    assert seen.numbers() == {100: 0}


def test_old_shell_that_execs_a_rank_is_found_within_32_ticks(proc):
    for pid in range(1000, 1100):
        proc.process(pid, "/bin/sleep 60", exe="/bin/sleep")
    env = torch_rank(0, 2)
    proc.process(100, "bash start.sh", env=env)
    seen = watch(proc)
    proc.python(100, env=env)

    for _ in range(32):
        seen.tick()

    assert seen.numbers() == {100: 0}


def test_reused_pid_ends_the_old_rank_and_starts_a_new_one(proc):
    proc.python(100, env=torch_rank(0, 2), start=500)
    seen = watch(proc)

    proc.python(100, env=torch_rank(1, 2), start=700)
    for _ in range(3):
        seen.tick()

    first, second = [rank for rank in seen.said if rank.pid == 100 and hasattr(rank, "status")][-2:]
    assert (first.start_ticks, first.rank, first.status) == (500, 0, "exited")
    assert (second.start_ticks, second.rank, second.status) == (700, 1, "present")


def test_pid_reused_between_two_listings_is_reported_as_two_processes(proc):
    proc.python(100, "serve.py", start=999_900)
    seen = watch(proc)

    proc.python(100, "serve.py", start=999_990)
    records = seen.tick() + seen.tick()

    assert {(one.start_ticks, one.gone) for one in records} == {(999_900, True), (999_990, False)}


def test_process_that_changes_its_rank_withdraws_the_first_one(proc):
    proc.python(100, env=torch_rank(0, 2), start=999_900, env_start=1)
    seen = watch(proc)

    proc.python(100, env=torch_rank(1, 2), start=999_900, env_start=2)

    records = [(one.rank, one.status) for one in seen.tick() if hasattr(one, "status")]
    assert records == [(0, "withdrawn"), (1, "present")]


def test_first_of_duplicate_environment_variables_is_used(proc):
    proc.python(100)
    (proc.root / "100" / "environ").write_bytes(b"RANK=1\0WORLD_SIZE=4\0RANK=2\0")

    assert watch(proc).numbers() == {100: 1}


def test_parent_younger_than_its_child_is_ignored(proc):
    env = torch_rank(0, 2)
    proc.python(100, env=env, start=900)
    proc.python(200, env=env, ppid=100, start=300)

    assert watch(proc).numbers() == {100: 0, 200: 0}


def test_untrusted_process_text_is_masked_and_made_printable(proc):
    env = torch_rank(0, 2, TORCHELASTIC_RUN_ID="a\x1b[0mb")
    proc.python(100, "train.py --api-key=hunter2 --token s3cret \x1b[2J", env=env)
    (proc.root / "101").mkdir()

    seen = watch(proc)

    assert "hunter2" not in seen.processes[100].cmdline
    assert "s3cret" not in seen.processes[100].cmdline
    assert seen.processes[100].cmdline.isprintable()
    assert seen.ranks[100].job.isprintable()


def test_rank_references_and_process_counts_are_published(proc):
    proc.python(100, env=torch_rank(0, 2))
    proc.process(9, "", hidden=True)

    seen = watch(proc).seen

    assert [(ref.rank, ref.local_rank, ref.pid, ref.attempt) for ref in seen.ranks] == [(0, 0, 100, 0)]
    assert (seen.total, seen.unreadable) == (2, 0)  # including the hidden one


def test_unchanged_rank_is_reported_once(proc):
    proc.python(100, env=torch_rank(0, 2))
    seen = Watch(proc)
    seen.tick()

    assert {type(record).__name__ for record in seen.tick()} == {"RankStat"}


def test_process_listing_is_skipped_for_a_few_ticks_while_no_process_starts(proc):
    (proc.root / "loadavg").write_text("0.00 0.00 0.00 1/90 777\n")
    seen = watch(proc)
    proc.python(100, env=torch_rank(0, 2))

    seen.tick()
    assert seen.ranks == {}, "according to the kernel no process was started"
    (proc.root / "loadavg").write_text("0.00 0.00 0.00 1/91 778\n")
    seen.tick()
    assert seen.numbers() == {100: 0}

    proc.python(101, env=torch_rank(1, 2))
    for _ in range(5):
        seen.tick()
    assert seen.numbers() == {100: 0, 101: 1}


def test_processes_below_a_rank_are_published_for_captures(proc):
    proc.python(10, env=torch_rank(1, 2, TORCHELASTIC_RESTART_COUNT="3"))
    proc.python(11, ppid=10, comm="pt_data_worker0", env=torch_rank(1, 2, TORCHELASTIC_RESTART_COUNT="3"))
    [child] = watch(proc).seen.children
    assert (child.pid, child.role, child.rank, child.attempt) == (11, "dataloader_worker", 1, 3)


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_STEP_ID": "²", "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
        {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "²", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
        {"RANK": "²", "WORLD_SIZE": "٣", "CUDA_VISIBLE_DEVICES": "²"},
        {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "²", "LOCAL_RANK": "9" * 400},
        {"NCCL_RAS_ADDR": "x:²", "RANK": "0", "WORLD_SIZE": "1"},
    ],
)
def test_malformed_numbers_of_one_process_hide_no_rank_of_another(proc, env):
    proc.python(90, env=env)
    proc.python(100, env={"RANK": "1", "WORLD_SIZE": "2"})
    seen = watch(proc)
    assert seen.ranks[100].rank == 1
    assert nccl_ras.port_of(env) == nccl_ras.PORT


def test_process_whose_examination_fails_is_reported_and_hides_no_rank(proc, monkeypatch):
    def examine(self, entry, parent):
        if entry.pid == 90:
            raise RuntimeError("unexpected data")
        return real(self, entry, parent)

    real = ProcessExaminer.examine
    monkeypatch.setattr(ProcessExaminer, "examine", examine)
    proc.python(90, env={"RANK": "0", "WORLD_SIZE": "2"})
    proc.python(100, env={"RANK": "1", "WORLD_SIZE": "2"})
    seen = watch(proc)
    assert list(seen.ranks) == [100]
    [log] = [record for record in seen.said if isinstance(record, Log)]
    assert (log.severity, "process 90" in log.text, "unexpected data" in log.text) == ("error", True, True)
    assert [draft.id for draft in findings_of(log)] == ["agent_error"]


def test_process_whose_variables_cannot_be_read_again_hides_no_rank(proc, monkeypatch):
    def refresh(self, entry, parent, young):
        if entry.pid == 90:
            raise ValueError("needs more than a child may use")
        return real(self, entry, parent, young)

    real = ProcessExaminer.refresh
    proc.python(90, env={"RANK": "0", "WORLD_SIZE": "2"})
    proc.python(100, env={"RANK": "1", "WORLD_SIZE": "2"})
    seen = watch(proc)
    assert list(seen.ranks) == [90, 100]
    monkeypatch.setattr(ProcessExaminer, "refresh", refresh)
    proc.python(110, env={"RANK": "1", "WORLD_SIZE": "2"}, ppid=100)
    proc.python(120, env={"RANK": "0", "WORLD_SIZE": "2"})
    for _ in range(20):
        seen.tick()
    assert seen.ranks[120].status == seen.ranks[100].status == "present"
    assert [record.severity for record in seen.said if isinstance(record, Log)] == ["error"]


def findings_of(*records):
    state = HealthState(60.0, 50.0)
    state.add(structs.replace(record, node="n", rx=1) for record in records)
    return list(health_findings(state, HealthConfig()))


SLEEP = {"exe": "/usr/bin/sleep", "comm": "sleep", "ppid": 50}


def test_rank_that_called_exec_remains_a_rank(proc):
    proc.python(50, "/usr/bin/torchrun --nnodes 2 train.py")
    proc.process(100, "sleep 1000", env=torch_rank(1, 4), **SLEEP)
    without_children(proc)

    assert watch(proc).numbers() == {100: 1}


@pytest.mark.parametrize(
    ("env", "start", "child", "launcher"),
    [
        ({}, None, "", "torchrun"),
        (torch_rank(1, 4), 999_900, "", "torchrun"),
        (torch_rank(1, 4), None, "101 ", "torchrun"),
        (torch_rank(1, 4), None, "", "mpirun"),
    ],
    ids=["no rank", "has just begun", "has a child", "a launcher of any program"],
)
def test_program_below_a_launcher_is_no_rank_if_it_may_be_a_wrapper_or_native(proc, env, start, child, launcher):
    proc.python(50, f"/usr/bin/{launcher} train.py")
    proc.process(100, "wrap python", env=env, start=start, **SLEEP)
    without_children(proc, child)

    assert watch(proc).numbers() == {}


def without_children(proc, others: str = "") -> None:
    children = proc.root / "100" / "task" / "100" / "children"
    children.parent.mkdir(parents=True, exist_ok=True)
    children.write_text(others)
