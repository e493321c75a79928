"""`gconsole collectives`: the collective operations of each job, and the traffic between its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..text.sanitize import printable_lines
from .main import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_PARTIAL
from .options import json_option, selection_of, target_or_recording
from .terminal import print_text

if TYPE_CHECKING:
    from ..core.store import Store


@click.command()
@target_or_recording
@click.option("--matrix", is_flag=True, help="Print only the traffic matrix: bytes from each rank to each rank.")
@click.option("--job", "jobs", metavar="NAME", multiple=True, help="Only jobs with this in their name. Repeatable.")
@click.option("-q", "--quiet", is_flag=True, help="Suppress progress.")
@json_option
def collectives(
    target: str | None, overrides: tuple[str, ...], source: Path | None, matrix: bool, jobs: tuple[str, ...],
    quiet: bool, as_json: bool,
) -> int:  # fmt: skip
    """Show faults, process groups, traffic, load and statistics of the collectives of each job.

    Reads PyTorch's Flight Recorder, NCCL RAS and NCCL's logs of all ranks once. Exit codes: 0 data of all ranks, 3 no
    data or not all nodes, 4 no node.

    \b
    gconsole collectives hosts.toml
    gconsole collectives hosts.toml --matrix
    gconsole collectives --from night --job llama
    """
    from ..monitor.hang import newest_communications
    from ..present.collectives import job_text
    from ..report import coverage_code

    if source is not None:
        from .output import folded

        store, interrupted = folded(source), False
    else:
        store, interrupted = _captured(target or "", overrides, jobs, quiet=quiet)
    communications = [
        communication
        for _, communication in newest_communications(store).values()
        if not jobs or any(name in communication.job for name in jobs)
    ]
    if as_json:
        from ..report.collectives import collectives_line
        from ..text.documents import pretty

        line = collectives_line(store, jobs)
        shown = {"matrix": line.matrix} if matrix else msgspec.structs.asdict(line)
        print_text(pretty({"schema": "gconsole.collectives/1", **shown}), is_document=True)
    else:
        _print_texts([job_text(communication, is_matrix_only=matrix) for communication in communications])
    if interrupted:
        return EXIT_INTERRUPTED
    status = coverage_code(store)
    return status if status == EXIT_NOTHING or any(each.sources for each in communications) else EXIT_PARTIAL


def _print_texts(texts: Sequence[str]) -> None:
    print_text(printable_lines("\n\n".join(texts) or "no collective data; see docs/guide/skew.md for its sources"))


def _captured(target: str, overrides: tuple[str, ...], jobs: tuple[str, ...], *, quiet: bool) -> tuple[Store, bool]:
    import asyncio

    from ..core.control import CaptureRequest, new_capture
    from .live import watch_nodes
    from .options import load_target

    config = load_target(target, overrides)
    order = CaptureRequest(new_capture())
    selection = selection_of(order, jobs, None, ())
    return asyncio.run(watch_nodes(config, quiet=quiet, order=order, selection=selection, awaits_ranks=True))
