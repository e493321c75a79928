"""Option combinations that `gconsole batch` rejects before it connects."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli.batch import batch


@pytest.mark.parametrize(
    "option", [["--for", "5s"], ["--records", "again.ndjson"], ["--set", "console.read_only=true"]]
)
def test_batch_from_a_recording_rejects_options_that_need_live_nodes(option: list[str], tmp_path: Path):
    recording = tmp_path / "night.ndjson"
    recording.touch()
    result = CliRunner().invoke(batch, ["--from", str(recording), *option])
    assert result.exit_code == 2
    assert f"{option[0]} requires live nodes" in result.output
