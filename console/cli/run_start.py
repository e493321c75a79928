"""Planning and starting: what `gconsole run plan` and `start` do."""

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
from .run_control import ended, job_named
from .run_options import request_of

if TYPE_CHECKING:
    from ..launch.request import JobRequest
    from .run_live import Live


async def plan(target: str, overrides: tuple[str, ...], options: dict[str, Any]) -> Any:
    from ..launch.request import new_job
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config) as fleet:
        return await _planned(fleet, request, new_job(request.command))


async def _planned(fleet: Live, request: Any, job: str) -> Any:
    from ..launch.capacity import node_facts
    from ..launch.planner import make_plan

    return await make_plan(fleet.fleet, node_facts(fleet.store, fleet.environments), request, job)


async def start(
    target: str, overrides: tuple[str, ...], options: dict[str, Any], yes: bool, follow: bool, as_json: bool
) -> int:
    from ..launch import format
    from ..launch.plan import Refusal
    from ..launch.request import new_job
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config, allow_run=True) as fleet:
        found = await _planned(fleet, request, new_job(request.command))
        if isinstance(found, Refusal):
            click.echo(format.to_json(found) if as_json else format.refusal_text(found))
            return EXIT_FINDING
        click.echo(format.to_json(found) if as_json else format.plan_text(found))
        if not (yes or await asyncio.to_thread(click.confirm, "Start it?", default=False, err=True)):
            return EXIT_FINDING
        if request.sync is not None and not await _copied(fleet, request, list(found.orders)):
            return EXIT_FINDING
        failures = await fleet.fleet.start_job(found.orders)
        if failures:
            _tell(failures)
            unknown = any(failure.name in ("left", "lost", "timeout") for failure in failures.values())
            click.echo(f"{found.job} was not started" + ("; look with: gconsole run status" if unknown else
                       "; nothing of it is left"), err=True)  # fmt: skip
            return EXIT_PARTIAL if unknown else EXIT_FINDING
        if not as_json:
            click.echo(f"{found.job} runs: gconsole run logs {target} {found.job} --follow", err=True)
        if not follow:
            return EXIT_OK
        return await _followed(fleet, found.job)


async def _copied(fleet: Live, request: JobRequest, nodes: list[str]) -> bool:
    """Copy the folder to the nodes; false where it did not come to every one of them."""
    assert request.sync is not None and request.workdir is not None
    answers = await fleet.fleet.sync_folder(nodes, request.sync, request.workdir)
    failures = {node: answer for node, answer in answers.items() if isinstance(answer, Failure)}
    _tell(failures)
    if failures:
        click.echo(f"nothing was started: {request.sync.local} did not come to every node", err=True)
        return False
    most = max(answer.files for answer in answers.values() if isinstance(answer, Synced))
    click.echo(f"{request.sync.local} is on {fold(nodes)}: {most} files differed", err=True)
    return True


def _tell(failures: Mapping[str, Failure]) -> None:
    for node, failure in failures.items():
        click.echo(printable(f"✖ {node}  {failure.name}: {failure.text}"), err=True)
        if failure.try_:
            click.echo(printable(f"  try: {failure.try_}"), err=True)


async def _followed(fleet: Live, job: str) -> int:
    from ..launch.state import job_status
    from .run_logs import Wanted, stream

    await fleet.until(lambda: (view := job_status(fleet.store, job)) is not None and not view.unseen, 15.0)
    view = await job_named(fleet, job)
    await stream(fleet, view, Wanted(), click.echo, follow=True)
    return ended(await job_named(fleet, job))
