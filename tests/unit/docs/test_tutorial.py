"""Part 1 of the tutorial: the output of its command matches the page. Part 2 runs in tests/hangs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "first-hang.md"


def comparable(text: str) -> str:
    """The text without numbers, line breaks and the random name of the job."""
    text = re.sub(r"demo@\S+|confidence: \w+", "", text)
    return " ".join(re.sub(r"\d+(\.\d+)?", "N", text).split())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")
def test_the_tutorials_demo_prints_the_verdict_that_the_page_shows() -> None:
    part = PAGE.read_text().partition("## Diagnose a hang without a cluster")[2].partition("\n## ")[0]
    (command,) = re.findall(r"```sh\n(gconsole .*)\n```", part)
    (shown,) = re.findall(r"```text\n(.*?)```", part, re.DOTALL)

    argv = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    start, _, next_step = shown.partition("  next ")
    output = comparable(done.stdout)
    assert comparable(start) in output
    assert comparable(f"next {next_step}") in output
