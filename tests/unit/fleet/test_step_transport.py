"""Which nodes share a step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gconsole.config.model import NodeConfig, SlurmStep
from gconsole.config.sections import AgentConfig
from gconsole.fleet.deploy.step_launch import StepLaunch
from gconsole.transport import errors
from gconsole.transport.login_limiter import LoginLimiter
from gconsole.transport.step import transport


class NoLimit:
    def spend(self, amount: float) -> float:
        return 0.0


def opened(nodes: list[NodeConfig]) -> tuple[list[Any], list[tuple[str, str]]]:
    """The failures of nodes that ask at once where srun is not installed, and the losses that are reported."""
    reports: list[tuple[str, str]] = []

    async def run() -> list[Any]:
        site = transport.StepTransport(
            LoginLimiter(8), lambda node: StepLaunch(node, AgentConfig(), "c" * 16), NoLimit,
            lambda name, error: reports.append((name, error.text if error else "")),
        )  # fmt: skip
        failures = await asyncio.gather(*(site.open(node, "id", None) for node in nodes), return_exceptions=True)
        await site.close()
        return failures

    return asyncio.run(run()), reports


def of_job(job: str, count: int, **agent: Any) -> list[NodeConfig]:
    return [
        NodeConfig(name=f"j{job}n{index}", engine=SlurmStep(job), agent=AgentConfig(**agent)) for index in range(count)
    ]


@pytest.fixture(autouse=True)
def no_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(transport, "GATHER_S", 0.01)


def test_nodes_of_a_job_that_ask_at_once_share_a_step_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_NODES", 2)
    failures, reports = opened(of_job("7", 5))
    assert {type(failure) for failure in failures} == {errors.SiteCommand}
    assert [name for name, _ in reports] == ["slurm:7", "slurm:7 j7n2"], "a single node's failure is its own"
    assert reports[0][1] == "step of slurm:7: `srun` is not installed here"


def test_other_jobs_and_other_pythons_have_steps_of_their_own() -> None:
    _, reports = opened([*of_job("7", 2), *of_job("8", 2), *of_job("9", 2, python="/opt/python3"), *of_job("9", 2)])
    assert [name for name, _ in reports] == ["slurm:7", "slurm:8", "slurm:9"]
