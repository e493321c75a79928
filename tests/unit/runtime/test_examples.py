"""The notebooks in examples/: small, without outputs of their own, and they run on a demo cluster."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
RUNNER = Path(__file__).with_name("run_notebook.py")
#: Notebook → what its displays must contain.
SHOWN = {
    "hang-at-night": ["hung", "rank 1", "next_batch"],
    "slow-rank": ["share stopped", "stopped most often: rank 2"],
    "gpu-comparison": ["power_w", "'temp_c': '°C'", "demo2:gpu3"],
}


def execute(path: Path, folder: Path) -> str:
    env = {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(folder), "COLUMNS": "200"}
    argv = [sys.executable, "-P", str(RUNNER), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_a_notebook_for_each_question_and_none_is_large() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
    for path in NOTEBOOKS:
        assert path.stat().st_size < 200_000
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if "outputs" in cell)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_its_result(path: Path, tmp_path: Path) -> None:
    out = execute(path, tmp_path)
    missing = [text for text in SHOWN[path.stem] if not re.search(re.escape(text), out)]
    assert missing == [], out
