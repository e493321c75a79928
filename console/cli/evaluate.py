"""`gconsole eval`: one expression in the process of one rank, after a confirmation that names it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ..text.sanitize import printable, printable_lines
from .main import EXIT_FINDING, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import duration_option, json_option, load_target, require_confirmable, target
from .terminal import print_text

if TYPE_CHECKING:
    from ..analysis.jobs import RankSummary
    from ..core.evaluation import Evaluated, RankProcess
    from ..records import Failure
    from .run_live import LiveFleet


@click.command("eval")
@target
@click.argument("expression", metavar="EXPRESSION")
@click.option("--rank", type=click.IntRange(0), required=True, help="The rank.")
@click.option("--job", help="The job, if several have that rank.")
@duration_option("--timeout", "timeout_s", default="5s", help="Wait this long for the main thread; at most 1 min.")
@click.option("--yes", is_flag=True, help="Skip confirmation.")
@json_option
def eval_(
    target: str, overrides: tuple[str, ...], expression: str, rank: int, job: str | None, timeout_s: float, yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Evaluate a Python expression in the process of one rank and print its value.

    \b
    gconsole eval hosts.toml --rank 5 'model.training'
    gconsole eval hosts.toml --rank 5 'optimizer.param_groups[0]["lr"]'

    Off unless [agent] allow_eval = true for the node. It needs gdb there, or CPython 3.14 for both the rank and the
    agent ([agent] python): sys.remote_exec. The main thread evaluates it between two bytecodes, with the variables of
    the innermost frame of the job's own code that has all its names; the job waits meanwhile. Exit codes: 0 a value,
    1 an exception, 3 not evaluated, 4 no node reachable.
    """
    from ..core.evaluation import RankProcess, is_statement

    if is_statement(expression):
        raise click.UsageError("EXPRESSION is a statement; only expressions are evaluated")
    require_confirmable(yes, f"evaluate an expression in rank {rank}")
    if not 0.1 <= timeout_s <= 60:
        raise click.BadParameter("from 0.1 s to 1 min", param_hint="--timeout")
    from ..core.store import Store
    from ..fleet.evaluation import FleetEvaluator
    from ..monitor.coverage import CONNECT_S, is_settled
    from ..runtime.console import Console
    from .run_live import LiveFleet

    config = load_target(target, overrides)
    if not any(node.agent.allow_eval for node in config.nodes):
        raise click.UsageError(f"eval is off; set [agent] allow_eval = true in {printable(str(config.path or target))}")

    async def run() -> int:
        console = Console(config, store=Store(), probe_clocks=False)
        async with console.running():
            fleet = LiveFleet(config, console.bus, console.store, console.fleet)
            await fleet.until(lambda: is_settled(fleet.store), CONNECT_S)
            chosen = _rank(fleet, rank, job)
            evaluator = FleetEvaluator(fleet.fleet.links, fleet.hub)
            process = RankProcess(chosen.node, chosen.job, rank, chosen.pid, chosen.start_ticks)
            if not evaluator.allows(chosen.node):
                raise click.UsageError(f"eval is off on {chosen.node}; set allow_eval = true for it")
            prompt = f"Evaluate in {process.description}? Its main thread pauses for it: {expression}"
            if not (yes or await asyncio.to_thread(click.confirm, printable(prompt) + "\n", default=False, err=True)):
                return EXIT_FINDING
            return _report(process, await evaluator.evaluate(process, expression, timeout_s), as_json)

    return asyncio.run(run())


def _rank(fleet: LiveFleet, number: int, job: str | None) -> RankSummary:
    """The live process of a rank. Raises UsageError if there is none, or several; Exit(4) if no node is reachable."""
    from ..monitor.hang import jobs_of
    from ..report import coverage_code

    if coverage_code(fleet.store) == EXIT_NOTHING:
        print_text(printable("gconsole: no node reachable"), err=True)
        raise click.exceptions.Exit(EXIT_NOTHING)
    rows = [row for row in jobs_of(fleet.store).rows if row.rank == number and row.status == "present"]
    if job is not None:
        rows = [row for row in rows if row.job.startswith(job)]
    if not rows:
        raise click.UsageError(f"no live rank {number}" + (f" of job {job}" if job is not None else ""))
    if len(rows) > 1:
        places = printable(", ".join(f"{row.job} on {row.node} (pid {row.pid})" for row in rows[:8]))
        raise click.UsageError(f"several processes are rank {number}; choose with --job: {places}")
    return rows[0]


def _report(process: RankProcess, answer: Evaluated | Failure, as_json: bool) -> int:
    """Print the result; returns the exit code."""
    from ..core.evaluation import Evaluated
    from ..text.documents import pretty

    if as_json:
        print_text(pretty({"schema": "gconsole.eval/1", "node": process.node, "pid": process.pid, "rank": process.rank,
                           "job": process.job, "answer": answer}), is_document=True)  # fmt: skip
    elif isinstance(answer, Evaluated):
        print_text(printable_lines(answer.value_text))
        print_text(printable(process.description + answer.circumstances), err=True)
    else:
        print_text(printable(f"gconsole: not evaluated: {answer.text}"), err=True)
        if answer.try_:
            print_text(printable(f"  try: {answer.try_}"), err=True)
    if not isinstance(answer, Evaluated):
        return EXIT_PARTIAL
    return EXIT_OK if answer.outcome == "value" else EXIT_FINDING
