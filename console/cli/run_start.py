"""Planning and starting jobs: `gconsole run plan` and `start`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..core.job_protocol import Synced
from ..records import Failure
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from .main import EXIT_FINDING, EXIT_OK, EXIT_PARTIAL
from .options import load_target
from .run_control import job_named, report_end
from .run_options import request_of

if TYPE_CHECKING:
    from ..launch.request import JobRequest
    from .run_live import LiveFleet


async def plan(target: str, overrides: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Connect and plan a job; returns a LaunchPlan or a Refusal."""
    from ..launch.request import new_job
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config) as fleet:
        return await _make_plan(fleet, request, new_job(request.command))


async def _make_plan(fleet: LiveFleet, request: Any, job: str) -> Any:
    from ..launch.capacity import node_facts
    from ..launch.plan import make_plan

    return await make_plan(fleet.fleet, node_facts(fleet.store, fleet.environments), request, job)


async def start(
    target: str, overrides: tuple[str, ...], options: dict[str, Any], yes: bool, follow: bool, as_json: bool
) -> int:
    """Plan, confirm and start a job; returns the exit code."""
    from ..launch import format
    from ..launch.plan import Refusal
    from ..launch.request import new_job
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config, allow_run=True) as fleet:
        plan = await _make_plan(fleet, request, new_job(request.command))
        if isinstance(plan, Refusal):
            click.echo(format.to_json(plan) if as_json else format.refusal_text(plan))
            return EXIT_FINDING
        click.echo(format.to_json(plan) if as_json else format.plan_text(plan))
        if not (yes or await asyncio.to_thread(click.confirm, "Start this job?", default=False, err=True)):
            return EXIT_FINDING
        if request.sync is not None and not await _sync_folder(fleet, request, list(plan.orders)):
            return EXIT_FINDING
        failures = await fleet.fleet.start_job(plan.orders)
        if failures:
            _print_failures(failures)
            unknown = any(failure.name in ("left", "lost", "timeout") for failure in failures.values())
            click.echo(f"{plan.job} was not started" + ("; unconfirmed, check: gconsole run status" if unknown else
                       "; no processes left"), err=True)  # fmt: skip
            return EXIT_PARTIAL if unknown else EXIT_FINDING
        if not as_json:
            click.echo(f"{plan.job} started. Follow output: gconsole run logs {target} {plan.job} --follow", err=True)
        if not follow:
            return EXIT_OK
        return await _follow(fleet, plan.job)


async def _sync_folder(fleet: LiveFleet, request: JobRequest, nodes: list[str]) -> bool:
    """Copy the folder to the nodes; False if any node failed."""
    assert request.sync is not None and request.workdir is not None
    answers = await fleet.fleet.sync_folder(nodes, request.sync, request.workdir)
    failures = {node: answer for node, answer in answers.items() if isinstance(answer, Failure)}
    _print_failures(failures)
    if failures:
        click.echo(f"not started: copying {request.sync.local} failed on some nodes", err=True)
        return False
    changed = max(answer.files for answer in answers.values() if isinstance(answer, Synced))
    click.echo(f"copied {request.sync.local} to {fold(nodes)}: up to {changed} files changed per node", err=True)
    return True


def _print_failures(failures: Mapping[str, Failure]) -> None:
    for node, failure in failures.items():
        click.echo(printable(f"✖ {node}  {failure.name}: {failure.text}"), err=True)
        if failure.try_:
            click.echo(printable(f"  try: {failure.try_}"), err=True)


async def _follow(fleet: LiveFleet, job: str) -> int:
    from ..launch.state import job_status
    from .run_output import LineFilter, stream

    await fleet.until(lambda: (view := job_status(fleet.store, job)) is not None and not view.unseen, 15.0)
    view = await job_named(fleet, job)
    await stream(fleet, view, LineFilter(), click.echo, follow=True)
    return report_end(await job_named(fleet, job))
