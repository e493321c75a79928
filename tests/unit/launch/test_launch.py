"""Arguments and environment for each launcher."""

from __future__ import annotations

import pytest

from gconsole.launch.request import BadCommand, NodePosition, commands

PLACE = NodePosition("j", 1, 2, 2, "10.0.0.1", 29500, True)


def the_argv(launcher, *command):
    [found] = commands(launcher, command, PLACE)
    return found.argv


def test_a_script_is_started_by_the_torchrun_on_the_path():
    assert the_argv("torchrun", "train.py", "-x")[0] == "torchrun"
    assert the_argv("torchrun", "train.py", "-x")[-2:] == ("train.py", "-x")


def test_given_python_runs_the_torch_launcher_of_its_environment():
    argv = the_argv("torchrun", "/venv/bin/python3.11", "-m", "pkg.train", "--lr", "1")
    assert argv[:3] == ("/venv/bin/python3.11", "-m", "torch.distributed.run")
    assert argv[-4:] == ("-m", "pkg.train", "--lr", "1")


def test_other_program_is_started_with_no_python_option():
    assert the_argv("torchrun", "./a.out", "1")[-3:] == ("--no_python", "./a.out", "1")


def test_accelerate_gets_its_own_options():
    argv = the_argv("accelerate", "python", "train.py")
    assert argv[:3] == ("python", "-m", "accelerate.commands.launch")
    assert {"--multi_gpu", "--num_machines=2", "--machine_rank=1", "--num_processes=4"} <= set(argv)


def test_ranks_of_accelerate_have_files_of_their_own_as_those_of_torchrun():
    [command] = commands("accelerate", ("python", "train.py"), PLACE)
    assert command.argv[command.argv.index("--log_dir") + 1] == "$GCONSOLE_JOB_DIR/ranks"
    assert command.env["PET_REDIRECTS"] == "3"


def test_env_launcher_gives_each_rank_its_own_command_and_variables():
    first, second = commands("env", ("./a.out",), PLACE)
    assert (first.local_rank, second.local_rank) == (0, 1)
    assert second.env == {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    assert len({first.output, second.output, first.errors, second.errors}) == 4


@pytest.mark.parametrize("command", [(), ("python",), ("python3", "-u", "train.py")])
def test_command_that_torchrun_cannot_start_is_rejected(command):
    with pytest.raises(BadCommand):
        commands("torchrun", command, PLACE)
