"""Verdicts on folders of logs: real outputs, and outputs written after the sources of the programs."""

from pathlib import Path

import pytest
from analysis.crash.log_sets import LogSet, described, log_sets, verdict_on


@pytest.mark.parametrize("logs", log_sets(), ids=lambda logs: logs.name)
def test_log_set_has_its_expected_first_cause(logs: LogSet, tmp_path: Path) -> None:
    logs.write(tmp_path)
    assert described(verdict_on(tmp_path)) == logs.expect
