"""Options of `gconsole run`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from gconsole.cli.run_options import job_options, request_of
from gconsole.config.sections import RunConfig


def build(*args: str, preferred: RunConfig | None = None):
    found = []

    @click.command()
    @job_options
    def command(**options):
        found.append(request_of(options, preferred or RunConfig()))

    result = CliRunner().invoke(command, args, standalone_mode=False)
    if result.exception:
        raise result.exception
    return found[0]


def test_arguments_after_two_dashes_are_the_command_even_if_they_resemble_options():
    assert build("--nodes", "2", "--", "train.py", "--nodes", "9", "-h").command == ("train.py", "--nodes", "9", "-h")


def test_memory_size_has_binary_units_as_in_filters():
    assert build("--min-gpu-mem", "40GiB", "--", "t.py").min_gpu_mem_bytes == 40 << 30
    assert build("--min-gpu-mem", "1.5g", "--", "t.py").min_gpu_mem_bytes == 3 << 29
    with pytest.raises(click.BadParameter, match="use 40G or 512MiB"):
        build("--min-gpu-mem", "much", "--", "t.py")


def test_command_line_options_override_hosts_toml():
    preferred = RunConfig(select="node[1-4]", nodes=3, launcher="env", workdir="~/train", gpus_per_node=8)
    found = build("--nodes", "2", "--select", "auto", "--gpus-per-node", "0", "--", "t.py", preferred=preferred)
    assert (found.select, found.nodes, found.gpus_per_node) == (None, 2, 0)
    assert (found.launcher, found.workdir) == ("env", "~/train")
    assert build("--", "t.py", preferred=preferred).select == ("node1", "node2", "node3", "node4")


@pytest.mark.parametrize("text", ["novalue", "GCONSOLE_JOB=mine", "1X=2"])
def test_invalid_or_reserved_environment_variable_is_rejected(text):
    with pytest.raises(click.BadParameter):
        build("--env", text, "--", "t.py")
