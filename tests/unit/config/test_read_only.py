"""`[console] read_only` rejects every change of a node or a job, in one place and with one error."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gconsole.cli.batch import batch
from gconsole.config import Config, ConfigError, ConsoleConfig, load
from gconsole.config.diff import Changes, difference
from gconsole.config.model import Change, ReadOnly, refusal
from gconsole.core.bus import Hub
from gconsole.core.control import CaptureRequest, new_capture
from gconsole.fleet.fleet import Fleet

LOCKED, OPEN = ConsoleConfig(), ConsoleConfig(read_only=False)
ORDER = CaptureRequest(new_capture(), flight_pipe=True)


def config(console: ConsoleConfig = LOCKED) -> Config:
    return Config(cluster="lab", nodes=(), console=console)


def test_console_is_read_only_by_default(tmp_path: Path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[nodes]]\nhosts = "a"\n')
    assert load(str(hosts), environ={}).console.read_only is True
    assert load(str(hosts), environ={}, flags={"console.read_only": "false"}).console.read_only is False


@pytest.mark.parametrize("change", Change)
def test_every_change_is_refused_by_default_and_allowed_with_read_only_off(change: Change):
    assert refusal(LOCKED, change) is not None
    assert refusal(OPEN, change) is None


@pytest.mark.parametrize("change", Change)
def test_explicit_command_permits_only_changes_that_have_a_command(change: Change):
    assert (refusal(LOCKED, change, explicit=True) is None) == (change.command is not None)


@pytest.mark.parametrize("change", [Change.START_JOB, Change.STOP_JOB])
def test_the_refusal_names_the_key_and_the_command(change: Change):
    refused = refusal(LOCKED, change)
    assert refused is not None and isinstance(refused, ConfigError) and refused.name == "read_only"
    assert str(refused).startswith("console.read_only: ")
    assert str(change.command) in str(refused) and "console.read_only = false" in str(refused)
    assert "\n" not in str(refused)


async def test_read_only_fleet_refuses_to_start_and_stop_jobs():
    fleet = Fleet(config(), Hub())
    assert fleet.refusal(Change.START_JOB) is not None
    with pytest.raises(ReadOnly, match=r"console\.read_only"):
        await fleet.start_job({})
    with pytest.raises(ReadOnly, match=r"console\.read_only"):
        await fleet.stop_job("job", [], 1.0)


async def test_explicit_command_can_stop_a_job_on_a_read_only_fleet():
    assert await Fleet(config(), Hub(), allow_run=True).stop_job("job", [], 1.0) == {}


async def test_flight_recorder_pipe_capture_requires_read_only_off():
    for fleet in (Fleet(config(), Hub()), Fleet(config(), Hub(), allow_run=True)):
        with pytest.raises(ReadOnly, match=r"console\.read_only"):
            await fleet.capture(ORDER)
    assert (await Fleet(config(OPEN), Hub()).capture(ORDER)).nodes == {}


async def test_saving_the_config_does_not_unlock_a_running_console():
    fleet = Fleet(config(), Hub())
    assert await fleet.apply(config(OPEN)) == Changes(next_start=("console.read_only",))
    assert fleet.refusal(Change.STOP_JOB) is not None


def test_clipboard_change_is_listed_as_needing_a_restart():
    assert difference(config(), config(ConsoleConfig(clipboard="osc52"))).next_start == ("console.clipboard",)


def test_batch_refuses_a_read_only_capture_before_connecting():
    result = CliRunner().invoke(batch, ["nowhere[1-2]", "--capture", "--flight-pipe"], standalone_mode=False)
    assert isinstance(result.exception, ReadOnly) and not isinstance(result.exception, click.ClickException)
