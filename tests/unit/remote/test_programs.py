"""Classification of launchers and ranks by program name and arguments."""

import pytest

from gconsole_remote.proc.procfs import Stat, command_line
from gconsole_remote.proc.programs import LauncherPlan, child_role, launcher_of, slurm_step_of


def plan_of(command):
    return LauncherPlan(command.split())


@pytest.mark.parametrize(
    ("argv", "launcher"),
    [
        ("python /usr/bin/torchrun --nnodes 2 train.py", "torchrun"),
        ("/opt/venv/bin/python3.12 -u -X dev -m torch.distributed.run train.py", "torchrun"),
        ("python -m torch.distributed.launch --use_env train.py", "torchrun"),
        ("python /x/site-packages/torch/distributed/run.py train.py", "torchrun"),
        ("python /usr/bin/accelerate launch train.py", "accelerate"),
        ("python /usr/bin/accelerate env", None),
        ("python /usr/bin/deepspeed train.py", "deepspeed"),
        ("python -m deepspeed.launcher.launch --world_info=e30= train.py", "deepspeed"),
        ("python train.py torchrun", None),
        ("python my_torchrun.py", None),
        ("python -c print()", None),
        ("python", None),
        ("", None),
    ],
)
def test_python_launcher_is_recognised_by_the_program_it_runs(argv, launcher):
    assert launcher_of(argv.split(), "python3") == launcher


def test_native_launcher_is_recognised_by_its_process_name():
    assert launcher_of(["slurmstepd: [77.0]"], "slurmstepd") == "slurm"
    assert slurm_step_of(["slurmstepd: [77.0]"]) == "77.0"
    assert slurm_step_of(["slurmstepd: [77.batch]"]) is None


def test_launcher_options_end_where_the_script_begins():
    plan = plan_of("python /bin/torchrun --nproc_per_node=8 train.py --nnodes 4 --node_rank 3")

    assert (plan.nodes, plan.local_world_size, plan.world_size, plan.node_rank) == (1, 8, 8, 0)


def test_the_plan_of_accelerate_counts_all_processes():
    plan = plan_of("python /bin/accelerate launch --num_processes 16 --num_machines 2 --machine_rank 1 t.py")

    assert (plan.nodes, plan.local_world_size, plan.world_size, plan.node_rank) == (2, 8, 16, 1)


def test_launcher_plan_determined_at_run_time_is_unknown():
    plan = plan_of("python /bin/torchrun --nnodes=1:4 --nproc-per-node=gpu t.py")

    assert (plan.nodes, plan.local_world_size, plan.world_size, plan.node_rank) == (None, None, None, None)


def test_child_role_is_derived_from_process_name_and_program():
    assert child_role(["python", "train.py"], "pt_data_worker") == "dataloader_worker"
    assert child_role(["python", "train.py"], "python") == "child"
    assert child_role(["/usr/bin/cc1plus"], "cc1plus") == "compile_worker"


def test_a_process_name_with_parentheses_and_spaces_is_read_whole():
    tail = "S 7 " + " ".join(["0"] * 48)
    assert Stat(b"5 (a) b (c) " + tail.encode()).comm == "a) b (c"
    assert Stat(b"5 (a) b (c) " + tail.encode()).ppid == 7


def test_command_line_masks_secrets_and_is_truncated():
    assert command_line(["a", "--hf-token", "abc", "--password=def", "--lr", "1"]) == (
        "a --hf-token *** --password=*** --lr 1"
    )
    assert len(command_line(["x" * 5000])) == 512


def test_secret_argument_with_spaces_is_masked_completely():
    for value in ("two words", "-two words", "two;words,more", 'two "words'):
        assert command_line(["mysql", "--password", value, "--lr", "1"]) == "mysql --password *** --lr 1"
        assert command_line(["mysql", "--password=" + value, "db"]) == "mysql --password=*** db"


def test_a_kernel_thread_has_no_command_line():
    assert command_line([]) is None
