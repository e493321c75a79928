"""`gconsole doctor`: node checks."""

from __future__ import annotations

import asyncio

import click

from .options import load_target, target


@click.command()
@target
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check each node and suggest fixes.

    Checks: reachability, host key and login, Python, agent start, /proc visibility, ptrace, sudo, psutil, py-spy,
    NVML, clock, cache folder, and buffer capacity.
    """
    from ..fleet.survey import survey
    from ..monitor.node_exam import examine, exit_code, to_json, to_text
    from .terminal import counted

    config = load_target(target, overrides)
    answers = asyncio.run(survey(config, "doctor", {}, deadline_s=60.0, progress=counted("examined")))
    exams = examine(answers)
    click.echo(to_json(exams) if as_json else to_text(exams))
    return exit_code(exams)
