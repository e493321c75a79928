"""Everything the console can show, once: each view and each dialog with something to show, and how to get there.

What holds for every screen (that it looks as it did, that hostile text breaks no line, that every size is filled) is
checked for each of these; a new view or dialog is a new row here, and `test_screenshots.py` fails until it is.

    python tests/tui/screen_states.py FOLDER [STATE …]     draws them as SVG, to be looked at
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clusters import busy_cluster, clock_cluster, demo, jobs_cluster
from fake_cluster import FakeCluster
from textual.command import CommandList, CommandPalette
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, TextArea
from waiting import screen, settle, until

from gconsole.analysis.comparison import ChangedFact, Comparison, Figure, Spread
from gconsole.records import Finding
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.columns import ColumnsDialog
from gconsole.tui.dialogs.dialog import DetailDialog, KeysDialog, LinesDialog, LogDialog
from gconsole.tui.dialogs.export import ExportDialog
from gconsole.tui.dialogs.prompts import Confirm, Prompt, SecretPrompt
from gconsole.tui.dialogs.task import TaskDialog
from gconsole.tui.diff_screen import DiffScreen
from gconsole.tui.keymap.hints import ConsolePalette
from gconsole.tui.views.jobs.view import JobsView
from gconsole.tui.views.query.view import QueryView
from gconsole.tui.views.registry import VIEWS

#: Opens it on an app that shows the Overview of a settled cluster.
Open = Callable[["Stage"], Awaitable[object]]


@dataclass(frozen=True)
class Stage:
    """A running console and the cluster behind it."""

    pilot: Pilot[None]
    cluster: FakeCluster

    @property
    def app(self) -> ConsoleApp:
        assert isinstance(self.pilot.app, ConsoleApp)
        return self.pilot.app

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until_dialog(self, dialog: type[Screen[object]]) -> None:
        await until(self.pilot, lambda: isinstance(self.app.screen, dialog), dialog.__name__)

    async def settle(self) -> None:
        """Stop cursors from blinking, and wait until everything is painted."""
        for line in (*self.app.screen.query(Input), *self.app.screen.query(TextArea)):
            line.cursor_blink = False
        await settle(self.pilot)

    async def go_home(self) -> None:
        """Return to the Overview with Escape, and unfreeze the screen."""
        if self.app.frames.is_frozen:
            self.app.frames.action_freeze()
        for _ in range(12):
            at_home = len(self.app.screen_stack) == 1 and self.app.view.id == VIEWS[0].name
            if at_home:
                break
            await self.press("escape")
        assert self.app.view.id == VIEWS[0].name, "Escape did not lead home"
        self.app.screen.set_focus(self.app.view.initial_focus())
        await settle(self.pilot)


@dataclass(frozen=True)
class ScreenState:
    """One screen. `dialog` is what is open over the view."""

    name: str
    open: Open
    dialog: type[Screen[object]] | None = None
    cluster: Callable[[], FakeCluster] = busy_cluster


def keys(*pressed: str) -> Open:
    async def open_screen(stage: Stage) -> None:
        await stage.press(*pressed)
        stage.app.clear_notifications()  # they would go by themselves, at any time
        await until(stage.pilot, lambda: not stage.app.screen.query("Toast"), "no toast")

    return open_screen


async def _node_page(stage: Stage) -> None:
    await stage.app.views.show_page(stage.cluster.detailed_node)
    await until(stage.pilot, lambda: stage.app.view.selected_node == stage.cluster.detailed_node)
    await settle(stage.pilot)  # before its layout a page has other lines, and keys scroll it elsewhere


async def _page_of_failed(stage: Stage) -> None:
    await stage.press("shift+tab", "enter")
    await until(stage.pilot, lambda: stage.app.view.id == "nodes")


async def _process(stage: Stage) -> None:
    """The third line from the end of the page of a node, above its events."""
    await _node_page(stage)
    await stage.press("G")
    await settle(stage.pilot)  # the page scrolls after the key
    await stage.press("k", "k", "enter")
    await stage.until_dialog(DetailDialog)


def is_idle(palette: CommandPalette) -> bool:
    return palette._busy_timer is None and not palette._show_busy


def palette(text: str) -> Open:
    async def open_screen(stage: Stage) -> None:
        await stage.press("ctrl+p")
        await stage.until_dialog(CommandPalette)
        await stage.press(*text)
        dialog = stage.app.screen
        assert isinstance(dialog, CommandPalette)
        offers = dialog.query_one(CommandList)
        await until(stage.pilot, lambda: offers.option_count and is_idle(dialog), "offers")

    return open_screen


#: Pending logins; referenced here, because the event loop keeps only weak references to tasks.
_PROMPTS: set[asyncio.Future[str | None]] = set()


async def _secret(stage: Stage) -> None:
    for name in (stage.cluster.detailed_node, "bastion"):
        _PROMPTS.add(asyncio.ensure_future(stage.app.login_prompts.read_secret(f"ops@{name}", f"Password for {name}:")))
    await stage.until_dialog(SecretPrompt)
    await stage.press(*"horse")


async def _toast(stage: Stage) -> None:
    for severity in ("information", "warning", "error"):
        stage.app.notify(f"{severity}: {stage.cluster.detailed_node}", severity=severity, timeout=600, markup=False)  # type: ignore[arg-type]
    await until(stage.pilot, lambda: len(stage.app.screen.query("Toast")) == 3, "toasts")


async def _captured(stage: Stage) -> None:
    await stage.press("3", "s")
    await until(stage.pilot, lambda: ("capture", "1") in stage.cluster.calls, "a capture")
    await settle(stage.pilot)


def _query_result(sql: str, *pressed: str) -> Open:
    """A query and its result in the Query view, with a fixed duration."""

    async def open_screen(stage: Stage) -> None:
        await stage.press("9", "slash")
        view = stage.app.view
        assert isinstance(view, QueryView)
        await until(stage.pilot, lambda: view._editor.names, "the words that can be completed")
        view._editor.put(sql)
        await stage.press("enter")
        await until(stage.pilot, lambda: view._result is not None and view._started_at is None, "an answer")
        assert view._result is not None
        view.show_result(replace(view._result, took_s=0.05))
        await stage.press(*pressed)

    return open_screen


async def _log_that_is_gone(stage: Stage) -> None:
    stage.app.push_screen(LogDialog(Path("/nonexistent/gconsole.log")))
    await until(stage.pilot, lambda: "No such file" in screen(stage.app), "the reason")


async def _examined(stage: Stage) -> None:
    stage.app.nodes.action_examine_all()
    await stage.until_dialog(LinesDialog)


async def _planned(stage: Stage) -> None:
    await stage.press("0", "g", "N", *"--nodes 9 -- train.py --lr 1", "enter")
    await until(stage.pilot, lambda: "9 nodes needed" in screen(stage.app), "the plan")


async def _recording(stage: Stage) -> None:
    for name in ("evening-run", "gpus-only"):
        await stage.press("r", *name, "enter")
        await until(stage.pilot, lambda name=name: ("record", name) in stage.cluster.calls, "a recording")
    stage.app.clear_notifications()
    await until(stage.pilot, lambda: not stage.app.screen.query("Toast"), "no toast")


async def _recording_on_a_full_disk(stage: Stage) -> None:
    stage.cluster.recordings.trouble = "the disk is full"
    await _recording(stage)


async def _ending_a_recording(stage: Stage) -> None:
    await _recording(stage)
    await stage.press("r")
    await stage.until_dialog(Prompt)


def _nothing() -> FakeCluster:
    return FakeCluster(cluster="hosts")


def _connecting() -> FakeCluster:
    return FakeCluster(*(f"node{i:03}" for i in range(1, 17)))


def _no_job() -> FakeCluster:
    cluster = FakeCluster("node1", "node2")
    cluster.up()
    return cluster


async def _late_rank(stage: Stage) -> None:
    await stage.press("4")
    await settle(stage.pilot)  # lateness is folded once it is looked at
    await stage.press("enter")


def _clear() -> FakeCluster:
    """The demo with a finding that has no culprit."""
    cluster = demo()
    cluster.publish(
        Finding(id="undecided", severity="info", confidence="none", text="no stacks", first_seen=cluster.now_ns)
    )
    return cluster


async def _job_output(stage: Stage) -> None:
    """The page of the running job, with all output of its ranks."""
    await stage.press("0", "g", "enter")
    view = stage.app.view
    assert isinstance(view, JobsView)
    if stage.cluster.store.jobs.output.version >= 0:
        await until(stage.pilot, lambda: len(view._page.output.rows) == 5, "every line")


def difference(reading: object) -> Comparison:
    """Tuesday has one node less, another driver on most nodes, a missing link, and a throttled GPU."""

    def spread(median: float, tail: float, most: float) -> Spread:
        return Spread(345_600, median, tail, most * 0.99, most)

    changed = [ChangedFact(f"node{number:03}", "gpu0 driver", "550.127.05", "560.35.03") for number in range(1, 61)]
    changed += [ChangedFact(f"node{number:03}", "kernel", "5.15.0-94", "6.8.0-40") for number in (44, 45)]
    changed += [ChangedFact("node019", "nvlink links", "18", "17"), ChangedFact("node019", "rdma links", None, "8")]
    figures = [
        Figure("gpu.mem_used_bytes", spread(68e9, 71e9, 72e9), spread(68e9, 71e9, 72e9)),
        Figure("gpu.nvlink_tx_bytes_s", spread(0, 0, 3e6), spread(9e9, 12e9, 14e9)),
        Figure("gpu.power_w", spread(612, 688, 700), spread(540, 690, 701)),
        Figure("gpu.sm_clock_mhz", spread(1980, 1980, 1980), spread(1980, 1980, 1980)),
        Figure("gpu.temp_c", spread(61, 70, 73), spread(64, 81, 88)),
        Figure("gpu.util_pct", spread(97, 100, 100), spread(0.4, 99, 100)),
        Figure("nic.rx_bytes_s", None, spread(8e8, 9e8, 1e9)),
    ]
    return Comparison(
        schema="gconsole.diff/1", a="monday", b="tuesday", nodes_only_a=("node063", "node064"), nodes_only_b=(),
        changed=tuple(changed), findings_only_a=(), findings_only_b=("gpu_throttle: node019:gpu4", "nvlink_down"),
        findings_both=("clock_unsynced: node044",), figures=tuple(figures),
    )  # fmt: skip


async def _two_sessions(stage: Stage) -> None:
    stage.app.push_screen(DiffScreen("monday", "tuesday", difference))
    await until(stage.pilot, lambda: "METRICS" in screen(stage.app))


_PER_GPU = 'SELECT node, "index", util_pct FROM gpu WHERE util_pct IS NOT NULL ORDER BY ALL LIMIT 300'

STATES = (
    ScreenState("overview", keys()),
    ScreenState("overview of the demo", keys(), cluster=demo),
    ScreenState("overview, power", keys("m", "m", "j", "l"), cluster=_clear),
    ScreenState("no node at all", keys(), cluster=_nothing),
    ScreenState("connecting", keys(), cluster=_connecting),
    ScreenState("frozen", keys("space")),
    ScreenState("ranks", keys("2")),
    ScreenState("ranks of the demo", keys("2", "o"), cluster=demo),
    ScreenState("no job", keys("2"), cluster=_no_job),
    ScreenState("ranks by state", keys("2", "b", "b", "g")),
    ScreenState("a filter that is typed", keys("2", "slash", *"state:")),
    ScreenState("a filter with a mistake", keys("2", "slash", *"rank:0 stat:x")),
    ScreenState("a filter that is kept", keys("2", "slash", *"-state:moving", "enter")),
    ScreenState("a filter that nothing passes", keys("2", "slash", *"nonsense", "enter")),
    ScreenState("nodes", keys("n")),
    ScreenState("page of a node", _node_page),
    ScreenState("page of a failed node", _page_of_failed),
    ScreenState("events", keys("8")),
    ScreenState("hang", keys("3")),
    ScreenState("hang, captured", _captured, cluster=demo),
    ScreenState("gpus", keys("6")),
    ScreenState("page of a GPU", keys("6", "enter")),
    ScreenState("topology", keys("5")),
    ScreenState("jobs", keys("0"), cluster=jobs_cluster),
    ScreenState("jobs of the demo", keys("0"), cluster=demo),
    ScreenState("job that cannot start", _planned, TaskDialog, cluster=jobs_cluster),
    ScreenState("page of a job", _job_output, cluster=jobs_cluster),
    ScreenState("page of a failed job", keys("0", "g", "j", "enter"), cluster=jobs_cluster),
    ScreenState("page of a discovered job", keys("0", "G", "enter"), cluster=jobs_cluster),
    ScreenState("skew", keys("4"), cluster=clock_cluster),
    ScreenState("no skew", keys("4")),
    ScreenState("details of a late rank", _late_rank, DetailDialog, cluster=clock_cluster),
    ScreenState("clocks", keys("7"), cluster=clock_cluster),
    ScreenState("clocks, the edges", keys("7", "m"), cluster=clock_cluster),
    ScreenState("clock of a node", keys("7", "g", "j", "j", "enter"), cluster=clock_cluster),
    ScreenState("no clocks", keys("7")),
    ScreenState("query, nothing run", keys("9"), cluster=demo),
    ScreenState("query that is typed", keys("9", "slash", *"SELECT uti"), cluster=demo),
    ScreenState("query with a mistake", _query_result("SELECT powr_w FROM gpu", "escape"), cluster=demo),
    ScreenState("query", _query_result(_PER_GPU)),
    ScreenState("query, drawn as bars", _query_result(_PER_GPU, "p", "p")),
    ScreenState("query, drawn as heat", _query_result(_PER_GPU, "p", "p", "p")),
    ScreenState("columns", keys("2", "C", "j"), ColumnsDialog),
    ScreenState("export", keys("2", "e"), ExportDialog),
    ScreenState("events, scrolled back", keys("8", "g")),
    ScreenState("topology of the demo", keys("5"), cluster=demo),
    ScreenState("keys", keys("question_mark"), KeysDialog),
    ScreenState("keys of the ranks", keys("2", "question_mark"), KeysDialog),
    ScreenState("details of a job", keys("shift+tab", "shift+tab", "shift+tab", "enter"), DetailDialog),
    ScreenState("details of a finding", keys("tab", "enter"), DetailDialog),
    ScreenState("details of a rank", keys("2", "g", "j", "enter"), DetailDialog),
    ScreenState("details of a process", _process, DetailDialog),
    ScreenState("details of an event", keys("8", "k", "k", "enter"), DetailDialog),
    ScreenState("mark", keys("8", "M"), Prompt),
    ScreenState("record", keys("r"), Prompt),
    ScreenState("recording", _recording, cluster=demo),
    ScreenState("recording on a full disk", _recording_on_a_full_disk, cluster=demo),
    ScreenState("ending a recording", _ending_a_recording, Prompt, cluster=demo),
    ScreenState("two sessions", _two_sessions, DiffScreen),
    ScreenState("remove", lambda stage: stage.app.run_action("nodes.remove"), Confirm),
    ScreenState("add nodes", lambda stage: stage.app.run_action("nodes.add"), Prompt),
    ScreenState("login prompt", _secret, SecretPrompt),
    ScreenState("health check", _examined, LinesDialog),
    ScreenState("log file missing", _log_that_is_gone, LogDialog),
    ScreenState("palette", palette(""), ConsolePalette),
    ScreenState("palette, searching", palette("node"), ConsolePalette),
    ScreenState("toasts", _toast),
)  # fmt: skip


async def draw(state: ScreenState, folder: Path) -> None:
    """Save it as SVG at every size and in every theme of the tests."""
    from test_screenshots import VARIANTS

    cluster = state.cluster()
    async with cluster.app().run_test(size=(80, 24), notifications=True) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await state.open(stage)
        for theme, (width, height) in VARIANTS:
            stage.app.themes.use(theme)
            await pilot.resize_terminal(width, height)
            await stage.settle()
            name = f"{state.name} {width}x{height} {theme}.svg".replace(" ", "_")
            (folder / name).write_text(stage.app.export_screenshot(title=state.name))


if __name__ == "__main__":
    import event_loop_idle
    from pytest import MonkeyPatch

    with MonkeyPatch.context() as patched:
        event_loop_idle.use(patched)
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        for state in STATES:
            if state.name in sys.argv[2:] or not sys.argv[2:]:
                asyncio.run(draw(state, Path(sys.argv[1])))
