"""The request for a job over HTTP has the options of `gconsole run`, by a table that both must match."""

import click
import msgspec

from gconsole.cli.run import plan, start
from gconsole.web.resources.planning import StartJobRequest

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
    "folder": "sync",  # the id of a folder that was sent: the API reads none of its own machine
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
