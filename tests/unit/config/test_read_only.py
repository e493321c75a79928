"""`[console] read_only`: what would change a node or a job is refused, in one place and with one error."""

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


def test_who_sets_nothing_has_a_console_that_only_looks(tmp_path: Path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[nodes]]\nhosts = "a"\n')
    assert load(str(hosts), environ={}).console.read_only is True
    assert load(str(hosts), environ={}, flags={"console.read_only": "false"}).console.read_only is False


@pytest.mark.parametrize("change", Change)
def test_every_change_is_refused_by_default_and_allowed_where_the_key_is_off(change: Change):
    assert refusal(LOCKED, change) is not None
    assert refusal(OPEN, change) is None


@pytest.mark.parametrize("change", Change)
def test_an_explicit_command_permits_what_it_is_the_command_for_and_nothing_else(change: Change):
    assert (refusal(LOCKED, change, explicit=True) is None) == (change.command is not None)


@pytest.mark.parametrize("change", [Change.START_JOB, Change.STOP_JOB])
def test_the_refusal_names_the_key_and_the_command(change: Change):
    refused = refusal(LOCKED, change)
    assert refused is not None and isinstance(refused, ConfigError) and refused.name == "read_only"
    assert str(refused).startswith("console.read_only: ")
    assert str(change.command) in str(refused) and "console.read_only = false" in str(refused)
    assert "\n" not in str(refused)


async def test_a_fleet_that_nobody_permitted_it_starts_and_stops_no_job():
    fleet = Fleet(config(), Hub())
    assert fleet.refusal(Change.START_JOB) is not None
    with pytest.raises(ReadOnly, match=r"console\.read_only"):
        await fleet.start_job({})
    with pytest.raises(ReadOnly, match=r"console\.read_only"):
        await fleet.stop_job("job", [], 1.0)


async def test_the_explicit_command_may_stop_a_job():
    assert await Fleet(config(), Hub(), allow_run=True).stop_job("job", [], 1.0) == {}


async def test_ranks_are_made_to_write_a_dump_only_where_the_key_is_off():
    for fleet in (Fleet(config(), Hub()), Fleet(config(), Hub(), allow_run=True)):
        with pytest.raises(ReadOnly, match=r"console\.read_only"):
            await fleet.capture(ORDER)
    assert (await Fleet(config(OPEN), Hub()).capture(ORDER)).nodes == {}


async def test_a_file_that_is_saved_meanwhile_does_not_unlock_a_console_that_runs():
    fleet = Fleet(config(), Hub())
    assert await fleet.apply(config(OPEN)) == Changes(next_start=("console.read_only",))
    assert fleet.refusal(Change.STOP_JOB) is not None


def test_a_change_of_the_clipboard_is_called_so():
    assert difference(config(), config(ConsoleConfig(clipboard="osc52"))).next_start == ("console.clipboard",)


def test_batch_says_so_before_it_connects():
    result = CliRunner().invoke(batch, ["nowhere", "--capture", "--flight-pipe"], standalone_mode=False)
    assert isinstance(result.exception, ReadOnly) and not isinstance(result.exception, click.ClickException)
