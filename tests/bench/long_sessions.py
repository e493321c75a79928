"""Sessions of 10 M records: time to the first screen, and cost of seeks, queries and exports.

`python -m tests.bench.long_sessions --records 100000000` measures a session of another length, and prints its rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gconsole.session.format.layout import Session, named
from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row, as_text
from .session_maker import make_long

RECORDS, QUICK = 10_000_000, 300_000
UNCOMPACTED, GOAL_UNCOMPACTED_S, GOAL_VERIFY_S = 1_000_000, 1.5, 5.0
GOAL_PAINT_S, GOAL_ASK_S, GOAL_MEMORY = 2.0, 1.0, 300_000_000
GCONSOLE: Final = str(Path(sys.executable).parent / "gconsole")
QUESTION: Final = "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank"
#: Formats that write one file, and formats that write a folder.
_FILES, _FOLDERS = ("json", "perfetto", "speedscope", "gswarm", "html"), ("parquet", "csv")


@dataclass(frozen=True)
class ProgramRun:
    """A program with its children: seconds on the clock and of CPU, peak RSS."""

    wall_s: float
    cpu_s: float
    memory: int


def measure(quick: bool) -> Outcome:
    return measured(QUICK if quick else RECORDS)


def measured(records: int) -> Outcome:
    """All rows of one session of that many records."""
    with tempfile.TemporaryDirectory(prefix="gconsole-bench-") as scratch:
        session = named("long", Path(scratch))
        meta = make_long(session, records)
        size = sum(path.stat().st_size for path in session.segments())
        painted = first_paint(session)
        painted_late = first_paint(session, "--at", "90%")
        shutil.rmtree(session.path / "index", ignore_errors=True)
        jumps = in_new_process(_seek_costs, session.path)
        costs = in_new_process(_query_cost, session.path)
        stat = ran([GCONSOLE, "stat", str(session.path)])
        plot = ran([GCONSOLE, "stat", str(session.path), "--plot", str(Path(scratch, "plot.png"))])
        wide = ran(_query(session, "FROM gpu", "--limit", "0", "--format", "parquet", "-o", str(Path(scratch, "gpu"))))
        checked = ran([GCONSOLE, "sessions", "verify", str(session.path)])
        short = named("short", Path(scratch))
        uncompacted = make_long(short, min(records, UNCOMPACTED), parquet=False).records
        asked = ran(_query(short, QUESTION))
        forms = {form: _export(session, form, Path(scratch)) for form in (*_FILES, *_FOLDERS)}
        for path in session.segments():
            path.unlink()
        bare = ran([GCONSOLE, "export", str(session.path), "--format", "json", "--to", "2m", "-o", "-"])
    worst = max(forms.values(), key=lambda run: run.memory)
    exports = ", ".join(f"{form} {run.memory / 1e6:.0f} MB and {run.wall_s:.0f} s" for form, run in forms.items())
    count = f"{meta.records / 1e6:.0f} M records"
    return Outcome(
        [
            Row(f"replay of {count}: from exec to the first screen with its nodes", _spent(painted), "≤ 2 s",
                painted.wall_s <= GOAL_PAINT_S),
            Row("the same: seek to its end, current state", f"{jumps[1]:.1f} s CPU", "", None,
                f"reading all before {jumps[0]:.1f} s CPU", jumps[1] / jumps[0]),
            Row("the same: the five minutes before that instant", f"{jumps[2]:.1f} s CPU"),
            Row("`replay --at 90%` of it, without an index: until the first screen", _spent(painted_late), "≤ 2 s",
                painted_late.wall_s <= GOAL_PAINT_S),
            Row(f"`query` of {uncompacted:,} uncompacted records: avg by rank", _spent(asked), "≤ 1.5 s CPU",
                asked.cpu_s <= GOAL_UNCOMPACTED_S * uncompacted / UNCOMPACTED),
            Row(f"`FROM gpu` of {count} as Parquet", f"{_memory(wide.memory)}, {_spent(wide)}"),
            Row(f"`verify` of {size / 1e9:.2f} GB of segments", _spent(checked), "≤ 5 s for 1 GB",
                checked.cpu_s <= max(1.0, GOAL_VERIFY_S * size / 1e9)),
            Row(f"avg by rank in {count}, the best of three", f"{costs[0]:.2f} s", "≤ 1 s", costs[0] <= GOAL_ASK_S),
            Row("memory of that query, of a whole program", _memory(costs[1]), "≤ 300 MB", costs[1] <= GOAL_MEMORY),
            Row(f"`stat` of {count}", f"{_memory(stat.memory)}, {_spent(stat)}", "≤ 300 MB",
                stat.memory <= GOAL_MEMORY),
            Row("`stat --plot`", f"{_memory(plot.memory)}, {_spent(plot)}", "≤ 300 MB", plot.memory <= GOAL_MEMORY),
            Row(f"memory while exporting {count}, the worst of {len(forms)} forms", _memory(worst.memory), "≤ 300 MB",
                worst.memory <= GOAL_MEMORY),
            Row("memory while exporting where only Parquet is left, two minutes", _memory(bare.memory), "≤ 300 MB",
                bare.memory <= GOAL_MEMORY),
        ],
        [
            "64 nodes of 8 GPUs and a job of 512 ranks (fleet_minute.py): figures each second, clocks, findings, XIDs,"
            " captures of all ranks; one minute of values is repeated, so Parquet is smaller than real",
            "first screen: a pseudo-terminal of 140×40; memory: peak RSS of the program and its children",
            f"index made in {jumps[3]:.0f} s of CPU, once; exports: {exports}",
            f"load average when done {os.getloadavg()[0]:.1f}",
        ],
    )  # fmt: skip


def _query(session: Session, sql: str, *options: str) -> list[str]:
    return [GCONSOLE, "query", str(session.path), sql, *options]


def _spent(run: ProgramRun) -> str:
    return f"{run.wall_s:.2f} s ({run.cpu_s:.2f} s CPU)"


def _memory(number: int) -> str:
    return f"{number / 1e6:.0f} MB RSS"


def ran(argv: Sequence[str]) -> ProgramRun:
    """Run a program to its end, discarding its output. RuntimeError if it fails."""
    return in_new_process(_ran, list(argv))


def _ran(argv: list[str]) -> ProgramRun:
    began = time.perf_counter()
    child = os.posix_spawn(
        argv[0], argv, dict(os.environ), file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return ProgramRun(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def first_paint(session: Session, *options: str) -> ProgramRun:
    """From exec until a node's name is on the terminal; the best of three."""
    sys.path.append(str(Path(__file__).parents[1] / "cluster"))  # the rig, which `start_up` loads
    from .start_up import painted

    runs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall_s = painted([GCONSOLE, "replay", str(session.path), "--paused", *options], b"node0000")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        runs.append(ProgramRun(wall_s, cpu_s, after.ru_maxrss * 1024))
    return min(runs, key=lambda run: run.wall_s)


def _seek_costs(path: Path) -> tuple[float, float, float, float]:
    """CPU seconds: seek to the end without an index, with one, seek back after it, building the index."""
    from gconsole.session.replay import Replay

    plain = Replay(Session(path), history_bytes=1 << 30)
    slow = _cpu(lambda: plain.jump_quickly(plain.end))
    made = _cpu(plain.build_index)
    quick = _cpu(lambda: plain.jump_quickly(plain.end))
    return slow, quick, _cpu(plain.backfill), made


def _cpu(act: object) -> float:
    began = time.process_time()
    act()  # type: ignore[operator]
    return time.process_time() - began


def _query_cost(path: Path) -> tuple[float, int]:
    """(seconds of the best of three, peak RSS) of a query over all samples."""
    from gconsole.session.query.engine import Database
    from gconsole.session.query.sources import RecordedSource

    took = []
    with RecordedSource(path) as source:
        database = Database(source, source.scratch)
        for _ in range(4):
            began = time.monotonic()
            database.query(QUESTION)
            took.append(time.monotonic() - began)
        database.close()
    return min(took[1:]), memory_bytes()[1]


def _export(session: Session, form: str, scratch: Path) -> ProgramRun:
    out = "-" if form in _FILES else str(scratch / "out")
    try:
        return ran([GCONSOLE, "export", str(session.path), "--format", form, "-o", out])
    finally:
        shutil.rmtree(scratch / "out", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=RECORDS)
    outcome = measured(parser.parse_args().records)
    print(as_text({"long_sessions": outcome}), *outcome.how, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
