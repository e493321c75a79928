"""Secrets in source lines of ranks and in the environment of a job are in nothing that leaves the console."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from api_client import running_api
from program import Run, gconsole
from rig import Rig

sys.path.append(str(Path(__file__).parents[2]))  # `tests.fuzz` does not depend on a conftest

from gconsole import cli, web
from gconsole.analysis.hang.verdict import Coverage, Culprit, Site, Verdict
from gconsole.records import Local, Stack, StackFrame, encode
from gconsole.tui.views.hang.model import thread_lines, verdict_lines
from tests.fuzz.conversation import CAPTURE, FuzzedConversation

#: Of each planted secret the part behind its first blank, which a search for words would leave.
SECRETS = ("hunter22", "of-two-words", "hf_AbCdEfGhIjKlMnOpQrSt")
#: Rank 1 never enters the collective that rank 0 waits in: its line is the evidence of the verdict.
TRAIN = """
import sys, time
sys.path.insert(0, {folder!r})
from torch.distributed.distributed_c10d import all_reduce

def train(rank):
    if rank:
        while True: time.sleep(len(dict(token="hf_AbCdEfGhIjKlMnOpQrSt", password="hunter22 of-two-words")) / 200)
    all_reduce()

train(int({rank}))
"""
COLLECTIVE = "import time\ndef all_reduce():\n    while True: time.sleep(0.01)\n"
JOB = ("--nodes", "1", "--launcher", "env", "--env", "SECRET_TOKEN=hunter22 of-two-words", "--", "python3", "SCRIPT",
       "--password", "hunter22 of-two-words")  # fmt: skip


@pytest.fixture(scope="module")
def outputs(needs_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each way out of the console showed of one job, by its name."""
    folder = tmp_path_factory.mktemp("output")
    with Rig(nodes=1, name="sec1-output") as rig, contextlib.ExitStack() as ranks:
        node = rig.nodes[0]
        package = node.folder / "torch" / "distributed"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "distributed_c10d.py").write_text(COLLECTIVE)
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        for rank in "0", "1":
            (node.folder / f"train{rank}.py").write_text(TRAIN.format(folder=node.inside, rank=rank))
            argv = ["python3", f"{node.inside}/train{rank}.py"]
            process = ranks.enter_context(node.run(argv, env={**place, "RANK": rank, "LOCAL_RANK": rank}))
            ranks.callback(process.kill)
        hosts = rig.write_hosts_toml(folder / "hosts.toml", agent={"simulate_gpus": 2})
        state = {name: str(folder / name) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
        env = {**os.environ, **state, "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions")}

        def run(*args: object) -> Run:
            return gconsole(*args, env=env)

        report = folder / "report.json"
        diagnosed = run("batch", hosts, "-v", "--diagnose", "-o", report, "--record", "night")
        job = [word.replace("SCRIPT", f"{node.inside}/train0.py") for word in JOB]
        planned, as_json = run("run", "plan", hosts, *job), run("run", "plan", hosts, "--json", *job)
        page = run("export", "night", "--format", "html", "-o", "-")
        with running_api(hosts, folder) as api:
            api.until_connected(1)
            response = api.request("POST", "/diagnose", {}, deadline_s=150)
        logs = "".join(path.read_text() for path in (folder / "XDG_STATE_HOME").rglob("*.log"))
        yield {
            "report.json": report.read_text(), "diagnose": diagnosed.stdout, "stderr": diagnosed.stderr,
            "run plan": planned.stdout, "run plan --json": as_json.stdout, "page": page.stdout,
            "POST /diagnose": response.body.decode(), "log": logs,
        }  # fmt: skip


@pytest.mark.parametrize("name", ["report.json", "diagnose", "page", "POST /diagnose"])
def test_source_line_of_a_rank_leaves_the_console_without_its_secrets(outputs: dict[str, str], name: str) -> None:
    assert "token=***, password=***" in outputs[name]


@pytest.mark.parametrize(("name", "shown"), [("run plan", "SECRET_TOKEN=***"), ("run plan --json", '"***"')])
def test_environment_and_command_of_a_job_are_printed_without_secrets(
    outputs: dict[str, str], name: str, shown: str
) -> None:
    assert shown in outputs[name]


def test_secrets_are_in_no_output(outputs: dict[str, str]) -> None:
    assert json.loads(outputs["report.json"]) and json.loads(outputs["run plan --json"])
    assert [(name, secret) for name, text in outputs.items() for secret in SECRETS if secret in text] == []


#: Modules of the command line that print texts of their own, in which a word such as `token` names an option.
OWN_TEXTS = {"api.py", "config.py", "main.py", "serve.py", "terminal.py"}


def test_commands_print_data_only_through_the_redacting_function() -> None:
    printing = {path.name for path in Path(cli.__file__).parent.glob("*.py") if "click.echo" in path.read_text()}
    assert printing == OWN_TEXTS


def test_responses_are_encoded_only_by_the_redacting_encoder() -> None:
    modules = Path(web.__file__).parent.rglob("*.py")
    assert {path.name for path in modules if "json.encode" in path.read_text()} == {"openapi.py", "server.py"}


# -- source lines of a rank --------------------------------------------------------------------------------------------

SOURCE = 'login(token="hf_AbCdEfGhIjKlMnOpQrSt", password="hunter22 of-two-words")'
STACK = Stack(
    node="n1", capture="c", sample=0, role="rank", job="j", rank=0, pid=7, start_ticks=1, status="ok", seq=1,
    thread_id=1, thread_name="MainThread", frames=(StackFrame("main", "/train.py", 3, source=SOURCE),),
    locals=(Local(0, "password", "hunter22 of-two-words"), Local(0, "step", "41")),
)  # fmt: skip


def test_hang_view_shows_source_lines_and_variables_without_secrets() -> None:
    shown = "\n".join(line.text for line in thread_lines([STACK], 0, 400))
    assert "login(token=" in shown and "step = 41" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


def test_verdict_in_the_hang_view_quotes_no_secret() -> None:
    site = Site("main", "/train.py", 3, SOURCE)
    verdict = Verdict(
        job="j", state="hung", kind="missing_from_collective", victims=(),
        culprits=(Culprit(0, "n1", 7, "compute", site),),
        confidence="high", coverage=Coverage(1, 1, 1),
        summary=f"rank 0 is in {SOURCE}", evidence=(f"source /train.py:3: {SOURCE}",), next_step="look",
    )  # fmt: skip
    job = SimpleNamespace(job="j", judgement=SimpleNamespace(verdict=verdict, watched_s=None))
    shown = "\n".join(line.text for line in verdict_lines([job], 400))  # type: ignore[list-item]
    assert "login(token=" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


def test_source_lines_lose_their_secrets_before_anything_in_the_console_sees_them() -> None:
    conversation = FuzzedConversation()
    conversation.send_hello()
    conversation.receive(encode(msgspec.structs.replace(STACK, capture=CAPTURE)) + b"\n")
    [stack] = [record for record in conversation.records if isinstance(record, Stack)]
    assert stack.frames is not None and stack.frames[0].source is not None
    assert "login(token=" in stack.frames[0].source
    assert [secret for secret in SECRETS if secret in stack.frames[0].source] == []
