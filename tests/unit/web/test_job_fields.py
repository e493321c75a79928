"""The request for a job over HTTP has the options of `gconsole run`, by a table that both must match."""

from types import SimpleNamespace

import click
import msgspec
import pytest

from gconsole.cli.run import plan, start
from gconsole.web.problems import HttpProblemError
from gconsole.web.resources.planning import StartJobRequest, _request

#: Option → field of the request; None: only on the command line, for a reason.
FIELDS = {
    "command": "command",
    "nodes": "nodes",
    "gpus_per_node": "gpus_per_node",
    "procs_per_node": "procs_per_node",
    "min_gpu_mem": "min_gpu_mem_bytes",
    "min_mem": "min_mem_bytes",
    "min_disk": "min_disk_bytes",
    "select": "select",
    "check_imports": "check_imports",
    "launcher": "launcher",
    "config_file": "scale",  # its text: the API reads no file for a client
    "scale_batch": "scale",
    "folder": "sync",  # refused: see the test below
    "workdir": "workdir",
    "interface": "interface",
    "port": "port",
    "variables": "env",
    "target": None,  # the API has one
    "overrides": None,  # of `gconsole api`
    "via": None,
    "as_json": None,  # every answer is JSON
    "yes": None,  # a request asks nothing
    "follow": None,  # GET /jobs/{id}/logs
    "after": "after",  # a condition: a request does not wait
}


def options_of(command: click.Command) -> set[str]:
    common = {"quiet", "verbose", "log_file"}
    return {parameter.name for parameter in command.params if parameter.name is not None} - common


def test_every_option_of_a_job_is_a_field_or_an_exception_and_no_field_is_more() -> None:
    assert options_of(plan) | options_of(start) == set(FIELDS)
    fields = {field.name for field in msgspec.structs.fields(StartJobRequest)}
    assert {field for field in FIELDS.values() if field is not None} == fields


def test_folder_of_the_machine_of_the_api_is_refused_with_the_reason() -> None:
    preferred = SimpleNamespace(select="auto")
    context = SimpleNamespace(config=SimpleNamespace(run=preferred))
    with pytest.raises(HttpProblemError) as refused:
        _request(context, StartJobRequest(("train.py",), sync="/root/.ssh"))  # type: ignore[arg-type]
    problem = refused.value.problem
    assert (problem.status, problem.name) == (400, "no_sync")
    assert "read every file of its user" in problem.text and "run start --sync" in problem.try_
