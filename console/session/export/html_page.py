"""`html`: one page that needs nothing else, for a ticket: the verdicts, the findings, the stacks, the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from html import escape
from typing import BinaryIO, Final

import numpy as np

from ...core.store import Store
from ...monitor.hang import verdicts
from ...present.verdict import verdict_text
from ...records import Gpu
from ...records.metrics import HISTORY, fields_for
from ...report.captures import capture_text
from ...text import format
from ...text.nodeset_fold import fold, fold_ranks
from ...text.sanitize import printable_lines
from ..query.dictionary import unit_of
from ..query.live import history_of
from .gpu_curves import Curves, heat_svg, line_svg, median
from .slice import Chosen

#: Figures of GPUs that are drawn, each over all of them.
_FIGURES: Final = fields_for(Gpu, "page")
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1d2127; }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #c9d0d8 }
pre { background: #f3f5f7; padding: .8em 1em; overflow-x: auto; font-size: 12.5px }
table { border-collapse: collapse } td, th { padding: .2em .8em .2em 0; text-align: left; vertical-align: top }
.error { color: #b3261e } .warning { color: #8a5300 } .muted { color: #66707c } svg { max-width: 100% }
@media (prefers-color-scheme: dark) { body { background: #14171b; color: #dde3ea } pre { background: #1e2329 } }
"""


def write(what: Chosen, out: BinaryIO) -> None:
    """Write the page. Raises OSError, and what reading the session raises."""
    store, curves = Store(), Curves(_FIGURES)
    for record in what.records():
        store.apply([record])
        curves.add(record)
    for line in _page(_told(what.meta.name or what.path.name, store, _began(what, store)), curves):
        out.write(line.encode(errors="replace") + b"\n")


def _began(what: Chosen, store: Store) -> int:
    """When it begins: what it begins with had arrived before."""
    if what.choice.from_rx is not None:
        return what.choice.from_rx
    began = what.meta.parts[0].began if what.meta.parts else 0
    return began if store.started_rx <= began <= store.newest_rx else store.started_rx


def page_of(name: str, store: Store) -> Callable[[], str]:
    """The same page of a console that watches, or that plays a session: of what its store knows and keeps.

    What changes is taken at once; what is returned draws the plots, may take long, and may run in a thread.
    """
    told = list(_told(name, store))
    kept = history_of(store, "gpu")

    def drawn() -> str:
        curves = Curves(_FIGURES)
        if kept is not None:
            names = {key: (head["node"], head["index"], head["uuid"]) for key, head in kept.heads.items()
                     if head["index"] is not None}  # fmt: skip
            curves = Curves.of_history(_FIGURES, kept.known, HISTORY["gpu"], names)
        return "\n".join(_page(iter(told), curves)) + "\n"

    return drawn


def _page(told: Iterator[str], curves: Curves) -> Iterator[str]:
    yield from told
    yield from _plots(curves)
    yield "</html>"


def _told(name: str, store: Store, since: int = 0) -> Iterator[str]:
    """What the page says before its plots. `since` is when it begins, where that is not with its oldest record."""
    yield f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(name)} · gconsole</title>"
    # nothing that a node wrote may run or load anything, even if it were taken for markup
    yield "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield from _head(name, store, since or store.started_rx)
    yield from _verdicts(store)
    yield from _findings(store)
    yield from _stacks(store)


def _head(name: str, store: Store, since: int) -> Iterator[str]:
    cluster = store.console.cluster if store.console else ""
    begun = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(since / 1e9)) if since else "–"
    lasted = max(0, store.newest_rx - since) if since else None
    yield f"<h1>{escape(name)}</h1>"
    ranks = [now.rank.rank for now in store.ranks.values() if now.rank.rank is not None]
    facts = [("cluster", cluster or "–"), ("began", begun), ("lasted", format.duration(lasted)),
             ("nodes", fold(list(store.nodes)) or "–"), ("GPUs", str(len(store.gpus))),
             ("ranks", f"{len(ranks)}: {fold_ranks(ranks)}" if ranks else "–")]  # fmt: skip
    simulated = [now.name for now in store.nodes.values() if now.node is not None and now.node.simulated]
    if simulated:
        facts.append(("SIM", f"simulated: {fold(simulated)}"))
    rows = "".join(f"<tr><th>{escape(key)}<td>{escape(value)}" for key, value in facts)
    yield f"<table>{rows}</table>"


def _verdicts(store: Store) -> Iterator[str]:
    found = verdicts(store)
    if found:
        yield "<h2>Verdict</h2>"
        yield from (f"<pre>{escape(printable_lines(verdict_text(verdict)))}</pre>" for verdict in found)


def _findings(store: Store) -> Iterator[str]:
    order = {"error": 0, "warning": 1, "info": 2}
    found = sorted(
        store.findings.values(), key=lambda finding: (order[finding.severity], finding.first_seen, finding.id)
    )
    yield f"<h2>Findings: {len(found)}</h2>"
    if found:
        rows = (
            f"<tr><td class={one.severity}>{one.severity}<td>{escape(one.id)}<td>{escape(one.text)}"
            f"<td class=muted>{format.clock_time(one.first_seen)}"
            + (f" to {format.clock_time(one.cleared_at)}" if one.cleared_at else "")
            for one in found
        )
        yield f"<table>{''.join(rows)}</table>"


def _stacks(store: Store) -> Iterator[str]:
    text = capture_text(store)
    if text:
        yield f"<h2>Stacks</h2><pre>{escape(printable_lines(text))}</pre>"


def _plots(curves: Curves) -> Iterator[str]:
    for figure in _FIGURES:
        names, table = curves.table(figure)
        if not names:
            continue
        unit = unit_of(figure)
        yield f"<h2>{escape(figure)} <span class=muted>{escape(unit)}, {len(names)} GPUs</span></h2>"
        lines = [np.fmin.reduce(table, axis=0), median(table), np.fmax.reduce(table, axis=0)]
        yield line_svg(lines, ("least", "median", "most"), curves.seconds, unit)
        yield heat_svg(names, table)
