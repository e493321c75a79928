"""`gconsole eval` on the console's side: what it publishes, and results that a node makes up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from gconsole.cli.main import gconsole
from gconsole.core.bus import Hub
from gconsole.core.control import Control
from gconsole.core.evaluation import Evaluated, RankProcess, is_statement
from gconsole.fleet.evaluation import FleetEvaluator, evaluate
from gconsole.records import Failure, Log
from gconsole.transport.errors import AgentRefused

RANK = RankProcess(node="node1", job="j", rank=5, pid=7, start_ticks=9)
ANSWER = {"outcome": "value", "type": "bool", "text": "True", "place": "train.py:3 main", "way": "gdb",
          "paused_s": 0.2}  # fmt: skip


class Link:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def request(self, verb: str, args: dict[str, Any], deadline_s: float) -> Any:
        assert (verb, args["pid"], args["start_ticks"]) == ("eval", 7, 9)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def evaluated(answer: Any, expression: str = "model.training") -> tuple[Evaluated | Failure, list[Log]]:
    async def run() -> tuple[Evaluated | Failure, list[Log]]:
        hub, published = Hub(), []
        hub.subscribe(published.extend)
        result = await evaluate({"node1": Link(answer)}, hub, RANK, expression, 5.0)
        await asyncio.sleep(0)
        return result, published

    return asyncio.run(run())


def test_every_evaluation_is_a_record_before_and_after_without_secrets():
    result, published = evaluated(ANSWER, "login(token='abcdefgh')")
    assert result.text == "True"
    assert [(record.source, record.rank, record.pid, record.job) for record in published] == [("eval", 5, 7, "j")] * 2
    assert published[0].text == "expression sent to rank 5 on node1, pid 7: login(token=***)"
    assert published[1].text == "expression in rank 5 on node1, pid 7: value of type bool"


def test_refusal_of_the_node_is_a_failure_and_a_record():
    result, published = evaluated(AgentRefused("no_debugger", "/usr/bin/gdb is not installed on this node", "x"))
    assert isinstance(result, Failure)
    assert published[1].text.endswith("/usr/bin/gdb is not installed on this node")


@pytest.mark.parametrize("answer", [None, [], {**ANSWER, "text": "x" * 40_000}, {**ANSWER, "outcome": "other"}])
def test_invalid_result_is_a_failure(answer: Any):
    result, _ = evaluated(answer)
    assert isinstance(result, Failure)
    assert result.name == "no_answer"


@pytest.mark.parametrize("text", ["x = 1", "import os", "a; b", "del model", "for _ in x: y", "# nothing"])
def test_statement_never_reaches_the_node(text: str):
    evaluator = FleetEvaluator({"node1": Link(AssertionError("asked"))}, Hub())
    result = asyncio.run(evaluator.evaluate(RANK, text, 5.0))
    assert isinstance(result, Failure) and result.name == "no_expression"
    run = CliRunner().invoke(gconsole, ["eval", "local", "--rank", "0", "--yes", text])
    assert run.exit_code == 2 and "statement" in run.output


@pytest.mark.parametrize(
    "text", ["1 + 1", " model.training ", "(yield)", "'\\d'", "f(", "t'{x}'", "lambda: 1", "x" * 10]
)
def test_expression_and_what_only_a_newer_python_may_know_is_sent(text: str):
    assert not is_statement(text)


def test_no_client_of_the_control_protocol_can_evaluate():
    assert not [name for name in dir(Control) if "eval" in name]
