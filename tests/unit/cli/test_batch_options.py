"""Option combinations that `gconsole batch` rejects before it connects."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli.batch import batch
from gconsole.cli.clocks import clocks
from gconsole.config import ConfigError


@pytest.mark.parametrize(
    "option", [["--for", "5s"], ["--records", "again.ndjson"], ["--set", "console.read_only=true"]]
)
def test_batch_from_a_recording_rejects_options_that_need_live_nodes(option: list[str], tmp_path: Path):
    recording = tmp_path / "night.ndjson"
    recording.touch()
    result = CliRunner().invoke(batch, ["--from", str(recording), *option])
    assert result.exit_code == 2
    assert f"{option[0]} requires live nodes" in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--job", "llama"], "require --capture or --diagnose"),
        (["--diagnose", "--rank", "3"], "a verdict needs all ranks"),
        (["--diagnose", "--pid", "node1:7"], "a verdict needs all ranks"),
        (["--capture", "--pid", "node1"], "is not NODE:PID"),
        (["--capture", "--rank", "3-1"], "is not a rank or a range of ranks"),
        (["--capture", "--rank", "²"], "is not a rank or a range of ranks"),
    ],
)
def test_selection_that_does_not_fit_is_rejected(options: list[str], words: str, tmp_path: Path):
    result = CliRunner().invoke(batch, [str(tmp_path / "hosts.toml"), *options])
    assert result.exit_code == 2
    assert words in result.output


def test_selection_needs_live_nodes(tmp_path: Path):
    recording = tmp_path / "night.ndjson"
    recording.touch()
    result = CliRunner().invoke(batch, ["--from", str(recording), "--diagnose", "--job", "llama"])
    assert result.exit_code == 2
    assert "--job, --rank and --pid require live nodes" in result.output


def test_clocks_command_names_the_key_that_forbids_it_at_once():
    with pytest.raises(ConfigError, match=r"clock\.enabled"):
        CliRunner().invoke(clocks, ["local", "--set", "clock.enabled=false"], catch_exceptions=False)
