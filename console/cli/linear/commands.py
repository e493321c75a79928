"""The commands of the linear mode: a word and its arguments on a line of input."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.control import CaptureRequest, new_capture
from ...monitor import headless
from ...monitor.capture_selection import CaptureSelection, NothingSelected
from ...monitor.captures import newest_of
from ...monitor.coverage import is_reported, is_settled
from ...monitor.crash import crashes_of
from ...monitor.hang import Diagnosis, hang_models, verdict_finding, verdicts
from ...present.crash import crash_text
from ...present.stacks import captures_text
from ...present.verdict import verdict_text
from ...session.format.layout import SessionError
from ...session.record.selection import parse_record_request, session_name
from ...text import format
from ...text.cells import clean
from .changes import FindingNumbers
from .lists import (
    LISTS,
    CommandError,
    Listing,
    finding_lines,
    gpu_lines,
    job_lines,
    node_lines,
    rank_lines,
    without_glyph,
)

if TYPE_CHECKING:
    from ...core.store import Store
    from ...runtime.console import Console
    from ...tui.snapshot import ScreenSnapshot

#: Lines that a list prints at once; `more` prints the next ones.
PAGE: Final = 40
#: Samples of a capture, as on the screen, and seconds between them.
MOST_SAMPLES: Final = 100
EVERY_S: Final = 0.3
#: Seconds between two statements on the progress of a capture.
PROGRESS_S: Final = 2.0
#: Seconds that `wait` waits by default, and between two looks.
WAIT_S: Final = 60.0
POLL_S: Final = 0.1
#: Seconds, at most, from the last report until all ranks of the nodes are in a snapshot: a busy console folds later.
FOLDED_S: Final = 10.0


class LineCommand(NamedTuple):
    """A command: its arguments and what it does, for `help`."""

    arguments: str
    help: str


COMMANDS: Final[dict[str, LineCommand]] = {
    "status": LineCommand("", "nodes, ranks, GPUs, open findings and recordings"),
    "findings": LineCommand("", "the open findings, the most severe first"),
    "finding": LineCommand("N", "finding N with its evidence"),
    "nodes": LineCommand("[FILTER]", "the nodes; a filter as in /: state:lost node:node0[1-3]*"),
    "node": LineCommand("NAME", "one node: errors, hardware, load"),
    "ranks": LineCommand("[FILTER]", "the ranks of all jobs"),
    "rank": LineCommand("N", "rank N: state, process, progress"),
    "gpus": LineCommand("[FILTER]", "the GPUs"),
    "gpu": LineCommand("NODE:INDEX", "one GPU with all of its figures"),
    "jobs": LineCommand("[FILTER]", "the jobs"),
    "job": LineCommand("NAME", "the job with that in its name"),
    "events": LineCommand("[FILTER]", "the newest events, newest first"),
    "filter": LineCommand("[TEXT]", "filter the last list and print it; without TEXT, remove the filter"),
    "sort": LineCommand("[COLUMN] [up]", "sort the last list, largest first, or smallest first with up"),
    "more": LineCommand("", f"the next {PAGE} lines of what was printed last"),
    "stacks": LineCommand("[N]", "capture the stacks of all ranks N times (1), and print their tree"),
    "diagnose": LineCommand("[JOB]", "capture until it is clear which rank blocks a job, and print the verdict"),
    "verdict": LineCommand("", "the newest verdicts, without a new capture"),
    "cancel": LineCommand("", "end the capture that runs"),
    "record": LineCommand("[NAME] | stop [NAME]", "start a recording, with the options of r on the screen, or stop it"),
    "mark": LineCommand("TEXT", "add a marker to Events and recordings"),
    "reconnect": LineCommand("NODE", "connect to a node again now"),
    "pause": LineCommand("", "hold back statements; resume prints them"),
    "resume": LineCommand("", "print statements again"),
    "wait": LineCommand("[SECONDS]", f"wait until every node has reported or failed, at most {WAIT_S:g} s"),
    "help": LineCommand("[COMMAND]", "this list"),
    "quit": LineCommand("", "end recordings, disconnect and quit"),
}
#: Commands that need nodes.
LIVE: Final = frozenset({"stacks", "diagnose", "cancel", "record", "mark", "reconnect", "wait"})
#: Other words for them.
ALIASES: Final = {"q": "quit", "exit": "quit", "?": "help", "h": "help", "hosts": "nodes", "hang": "verdict"}


class CommandRunner:
    """Carries out commands on what is shown. `write` prints lines, `hold` pauses statements.

    `snapshot` returns the present state, `store` its records.
    """

    commands: Mapping[str, LineCommand] = {name: COMMANDS[name] for name in COMMANDS if name not in LIVE}

    def __init__(
        self, store: Callable[[], Store], numbers: FindingNumbers, *, write: Callable[[Sequence[str]], object],
        snapshot: Callable[[], ScreenSnapshot], hold: Callable[[bool], object],
    ) -> None:  # fmt: skip
        self._store, self._numbers, self._write, self._snapshot, self._hold = store, numbers, write, snapshot, hold
        self._listing = Listing()
        self._rest: list[str] = []  # of the last list
        self.is_over = False

    async def run(self, line: str) -> None:
        """Carry out one line; errors are printed."""
        word, _, text = line.strip().partition(" ")
        if word.startswith("/"):
            word, text = "filter", line.strip()[1:]
        word = ALIASES.get(word.lower(), word.lower())
        if not word:
            return
        try:
            if word not in self.commands:
                near = difflib.get_close_matches(word, self.commands, 1)
                hint = f"did you mean {near[0]}?" if near else "help lists the commands"
                raise CommandError(f"no command {clean(word)[:40]}; {hint}")
            if word in LISTS:
                self._list(word, text.strip())
                return
            result = getattr(self, f"_{word}")(text.strip())
            if isinstance(result, Awaitable):
                await result
            elif result is not None:
                self._print(result)
        except (CommandError, SessionError, NothingSelected) as error:
            self._write([str(error)])

    def close(self) -> None:
        """End what runs."""

    # -- printing ------------------------------------------------------------------------------------------------------

    def _print(self, lines: Iterable[str]) -> None:
        """Print the first page of these lines, and keep the others for `more`."""
        page = list(lines)
        self._rest = page[PAGE:]
        more = [f"{format.plural(len(self._rest), 'more line')}: type more"] if self._rest else []
        self._write([*page[:PAGE], *more])

    def _list(self, name: str, text: str) -> None:
        if text:
            self._listing.filter(name, text)
        self._print(self._listing.lines(name, self._snapshot()))

    def _filter(self, text: str) -> Iterable[str]:
        self._listing.filter(self._listing.last, text)
        return self._listing.lines(self._listing.last, self._snapshot())

    def _sort(self, text: str) -> Iterable[str]:
        column, _, order = text.rpartition(" ") if text.endswith(" up") else (text, "", "")
        self._listing.sort(self._listing.last, column, descending=order != "up")
        return self._listing.lines(self._listing.last, self._snapshot())

    def _more(self, text: str) -> Iterable[str]:
        return self._rest or ["no more lines"]

    def _help(self, text: str) -> Iterable[str]:
        names = [ALIASES.get(text, text)] if text else self.commands
        for name in names:
            if name not in self.commands:
                raise CommandError(f"no command {clean(name)[:40]}; help lists the commands")
            yield f"{name} {self.commands[name].arguments}".rstrip() + f": {self.commands[name].help}"

    def _status(self, text: str) -> Iterable[str]:
        frame = self._snapshot()
        header = frame.header
        nodes = f"{frame.fleet.ok} of {format.plural(frame.fleet.expected, 'node')}"
        yield f"cluster {clean(header.cluster)}: {nodes} connected"
        gpus = format.seen(header.gpus_seen, header.gpus_expected)
        yield f"GPUs {gpus}, ranks {format.seen(header.ranks_found, header.ranks_expected)}"
        yield f"{format.plural(len(frame.findings), 'open finding')}"
        for recording in header.recordings:
            yield f"recording {clean(recording.name)} for {format.duration(recording.length_ns)}"

    # -- things --------------------------------------------------------------------------------------------------------

    def _findings(self, text: str) -> Iterable[str]:
        findings = self._snapshot().findings
        yield f"findings: {len(findings)} open"
        for each in findings:
            yield f"finding {self._numbers.of(each)}: {each.severity}: {clean(each.id)}: {clean(each.text)}"

    def _finding(self, text: str) -> Iterable[str]:
        number = _number(text, "finding")
        return finding_lines(number, self._numbers.find(number, self._snapshot().findings))

    def _node(self, text: str) -> Iterable[str]:
        return node_lines(self._snapshot(), text)

    def _rank(self, text: str) -> Iterable[str]:
        return rank_lines(self._snapshot(), _number(text, "rank"))

    def _gpu(self, text: str) -> Iterable[str]:
        return gpu_lines(self._snapshot(), text)

    def _job(self, text: str) -> Iterable[str]:
        return job_lines(self._snapshot(), text)

    def _verdict(self, text: str) -> Iterable[str]:
        store = self._store()
        texts = [*(crash_text(crash.verdict) for crash in crashes_of(store)), *map(verdict_text, verdicts(store))]
        lines = [without_glyph(line) for part in texts for line in part.splitlines()]
        return lines or ["no verdict yet; diagnose samples all ranks"]

    def _pause(self, text: str) -> Iterable[str]:
        self._hold(True)
        return ["statements are held back; resume prints them"]

    def _resume(self, text: str) -> None:
        self._hold(False)

    def _quit(self, text: str) -> Iterable[str]:
        self.is_over = True
        return []


class LiveRunner(CommandRunner):
    """Carries out commands on the nodes of a console, too."""

    commands = COMMANDS

    def __init__(self, console: Console, numbers: FindingNumbers, **options: Any) -> None:
        super().__init__(lambda: console.store, numbers, **options)
        self._console = console
        self._capture: asyncio.Future[None] | None = None
        self._progress_s = 0.0
        self._is_warned = False  # that recordings run

    def close(self) -> None:
        """End the capture that runs."""
        if self._capture is not None:
            self._capture.cancel()

    # -- captures ------------------------------------------------------------------------------------------------------

    async def _stacks(self, text: str) -> None:
        samples = _number(text or "1", "stacks")
        if not 1 <= samples <= MOST_SAMPLES:
            raise CommandError(f"stacks takes a number of samples from 1 to {MOST_SAMPLES}")
        await self._carry_out(CaptureRequest(new_capture(), samples=samples, every_s=EVERY_S), None)
        store = self._console.store
        stacks = captures_text(newest_of(store.captures.values(), hang_models(store)))
        self._print(line.replace("▼", " ") for line in stacks.splitlines())

    async def _diagnose(self, text: str) -> None:
        await self._carry_out(Diagnosis(), CaptureSelection((text,)) if text else None)
        job_verdicts = await asyncio.to_thread(verdicts, self._console.store)
        self._console.findings.report("verdict", filter(None, map(verdict_finding, job_verdicts)))
        self._print(self._verdict(""))

    async def _carry_out(self, order: CaptureRequest | Diagnosis, selection: CaptureSelection | None) -> None:
        if self._capture is not None:
            raise CommandError("a capture is already running; cancel ends it")
        console = self._console
        if not len(console.store.ranks):
            raise CommandError("no ranks found; nodes shows which nodes are connected, wait waits for them")
        self._write([f"capturing stacks of {format.plural(len(console.store.ranks), 'rank')}"])
        progress = headless.ProgressLine(console.store, self._write_progress)
        self._progress_s = time.monotonic()
        work = headless.carry_out(
            console.store, console.bus, console.fleet, order, progress, selection, console.findings
        )  # fmt: skip
        self._capture = asyncio.ensure_future(work)
        try:
            await asyncio.wait({self._capture})
            if self._capture.cancelled():
                raise CommandError("cancelled; partial results are kept")
            self._capture.result()
        finally:
            self._capture = None

    def _write_progress(self, line: str) -> None:
        if time.monotonic() - self._progress_s >= PROGRESS_S:
            self._progress_s = time.monotonic()
            self._write([line])

    def _cancel(self, text: str) -> Iterable[str]:
        if self._capture is None:
            return ["no capture is running"]
        self._capture.cancel()
        return []

    # -- recordings, nodes, the run ------------------------------------------------------------------------------------

    async def _record(self, text: str) -> None:
        recorder = self._console.recorder
        running = [each.name for each in recorder.active()]
        word, _, name = text.partition(" ")
        if word == "stop":
            name = name.strip() or (running[0] if len(running) == 1 else "")
            if not name:
                raise CommandError(f"type record stop NAME; recordings: {', '.join(map(clean, running)) or 'none'}")
            done = await recorder.stop(name)
            self._write([f"recorded {clean(name)}: {format.plural(done.records, 'record')}, {format.size(done.bytes)}"])
            return
        typed, selection, last_s, since_s = parse_record_request(text)
        name = typed or session_name(self._console.config.cluster, time.time_ns())
        if last_s is not None:
            kept = await recorder.keep_last(name, last_s)
            self._write([f"kept {format.duration(kept.covered_ns)} as {clean(name)}"])
            return
        await recorder.start(name, selection, since_s)
        self._write([f"recording {clean(name)}; record stop ends it"])

    async def _mark(self, text: str) -> None:
        if not text:
            raise CommandError("type mark TEXT")
        await self._console.fleet.mark(text[:500])
        self._write(["marker added"])

    async def _reconnect(self, text: str) -> None:
        if text not in self._console.store.nodes:
            raise CommandError(f"no node {clean(text)}; nodes lists all")
        self._write([f"connecting to {clean(text)}"])
        await self._console.fleet.reconnect(text)

    async def _wait(self, text: str) -> None:
        try:
            limit_s = float(text or WAIT_S)
        except ValueError:
            raise CommandError(f"{clean(text)[:20]} is not a number of seconds") from None
        end, store = time.monotonic() + min(max(limit_s, 0.0), 86_400.0), self._console.store
        while not (is_settled(store) and is_reported(store)):
            if time.monotonic() >= end:
                raise CommandError(f"some nodes have not reported after {limit_s:g} s")
            await asyncio.sleep(POLL_S)
        end = time.monotonic() + FOLDED_S
        while self._shows_fewer_ranks_than(len(store.ranks)) and time.monotonic() < end:  # noqa: ASYNC110 - no event
            await asyncio.sleep(POLL_S)

    def _shows_fewer_ranks_than(self, count: int) -> bool:
        return sum(len(job.rows) for job in self._snapshot().jobs.jobs) < count

    def _quit(self, text: str) -> Iterable[str]:
        running = [each.name for each in self._console.recorder.active()]
        if running and not self._is_warned:
            self._is_warned = True
            return [f"recording {', '.join(map(clean, running))}; type quit again to end it and quit"]
        return super()._quit(text)


def _number(text: str, command: str) -> int:
    """The number after a command. Raises CommandError."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise CommandError(f"type {command} NUMBER" + (f"; {clean(text)[:20]} is not a number" if text else ""))
    return int(text)
