"""`gconsole demo --hang`: seven real hangs, each diagnosed by one command, without torch, root or a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import fork_server
import pytest

from gconsole.demo.ring import HANGS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")
DEMO = [fork_server.GCONSOLE, "demo", "--nodes", "2", "--ranks", "4", "--gpus", "0", "--batch"]
#: kind of hang → kind of verdict, culprit ranks, and their class
TRUTH = {
    "absent": ("rank_missing", [1], "sleep"),
    "dataloader": ("rank_missing", [1], "dataloader"),
    "stopped": ("rank_stopped", [1], "stopped"),
    "dead": ("rank_dead", [1], "dead"),
    "lock": ("rank_missing", [1], "python_lock"),
    "order": ("collective_mismatch", [1], "collective"),
    "cycle": ("p2p_cycle", [0, 1, 2, 3], "p2p"),
}
#: Hangs that other CI tests reproduce with real processes: the tutorial (dataloader), tests/hangs and tests/cluster.
ELSEWHERE = {"absent", "dataloader", "order", "stopped"}
EACH_HANG = [pytest.param(hang, marks=[pytest.mark.full] if hang in ELSEWHERE else []) for hang in HANGS]


@pytest.fixture(scope="module")
def demos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[subprocess.Popen[str], Path]]]:
    """Runs the demos of the selected tests in parallel, since they mostly wait."""
    selected = {item.callspec.params.get("hang") for item in request.session.items if hasattr(item, "callspec")}
    folder = tmp_path_factory.mktemp("hangs")
    running = {}
    for hang in selected & TRUTH.keys():
        report = folder / f"{hang}.json"
        asked = ["--diagnose"] if hang in ELSEWHERE else []  # a batch diagnoses the hang also without it
        argv = [*DEMO, "--hang", hang, *asked, "-o", str(report)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running[hang] = (fork_server.Popen(argv, **pipes), report)
    yield running
    for demo, _ in running.values():
        demo.terminate()
        demo.communicate()


def test_every_hang_has_an_expected_verdict() -> None:
    assert set(TRUTH) == set(HANGS)


@pytest.mark.slow
@pytest.mark.parametrize("hang", EACH_HANG)
def test_demo_hang_is_diagnosed_with_the_right_verdict_and_culprits(
    demos: dict[str, tuple[subprocess.Popen[str], Path]], hang: str
) -> None:
    demo, path = demos[hang]
    output, errors = demo.communicate(timeout=150)
    report: dict[str, Any] = json.loads(path.read_text())
    [verdict] = report["verdicts"]
    kind, ranks, cls = TRUTH[hang]
    assert (demo.returncode, verdict["state"], verdict["kind"]) == (1, "hung", kind), output + errors
    assert [culprit["rank"] for culprit in verdict["culprits"]] == ranks
    assert {culprit["class"] for culprit in verdict["culprits"]} == {cls}
    crash = "signalled" if hang == "dead" else kind  # that others wait for a rank that was killed is no second finding
    assert [finding["id"] for finding in report["findings"]] == [crash]
    assert any(rank["watched"] and rank["step"] > 0 for rank in report["ranks"]), "the steps of the ring are sampled"
    assert verdict["summary"] in output


@pytest.mark.slow
def test_working_demo_is_reported_as_running() -> None:
    done = fork_server.run([*DEMO, "--diagnose"], text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "● running" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["--hang", "nonsense"],
        ["--hang", "lock", "--ranks", "2"],
        ["--native"],
        ["--diagnose", "--hang", "lock", "--ranks", "1"],
    ],
)
def test_invalid_options_are_rejected_with_exit_code_2(args: list[str]) -> None:
    done = fork_server.run([*DEMO, *args], text=True, timeout=90)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_hang_of_a_watched_demo_is_reported_without_a_diagnosis_being_requested(tmp_path: Path) -> None:
    argv = [*DEMO, "--hang", "absent", "--for", "55s", "-o", str(tmp_path / "report.json")]
    demo = fork_server.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = demo.communicate(timeout=180)
    report = json.loads((tmp_path / "report.json").read_text())
    findings = [
        finding
        for finding in report["findings"]
        if datetime.fromisoformat(finding["first_seen"]).timestamp() < report["started_at_ns"] / 1e9 + 55
    ]  # before the diagnosis at the end of the batch
    assert demo.returncode == 1, f"{out}\n{err}"
    assert ("rank_missing", ["rank 1"]) in [(finding["id"], finding["culprits"]) for finding in findings]
