"""`gconsole diff` on a terminal, and from a replay: two sessions side by side, at any width."""

import os
import shutil
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from fake_cluster import SECOND
from screen_states import difference
from textual.pilot import Pilot
from tmux import Tmux
from waiting import painted, until
from waiting import screen as screen_of

from gconsole.analysis.comparison import Comparison
from gconsole.present.comparison import difference_lines, headline
from gconsole.records import Gpu, Node, Record
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, Session, named
from gconsole.session.query.worker import QueryWorkerClient
from gconsole.session.replay import Replay
from gconsole.text.cells import width_of
from gconsole.tui.dialogs.dialog import KeysDialog
from gconsole.tui.dialogs.prompts import Prompt
from gconsole.tui.diff_screen import DiffApp, DiffScreen, diff_of
from gconsole.tui.replay_app import ReplayApp

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
GCONSOLE = Path(sys.executable).with_name("gconsole")


def write_diff_session(folder: Path, name: str, kernel: str = "5.15", power_w: float = 300.0) -> Session:
    session = named(name, folder)
    head = {"node": "node1", "agent": f"agent of {name}"}
    records: list[Record] = [
        Node(**head, seq=1, rx=SECOND, hostname="node1", boot_id="b", kernel=kernel, arch="x86_64", python="3.10",
             uid=0, pid=1, sample_interval_ms=1000),
        *(Gpu(**head, seq=2 + n, t=n, mono=n, rx=(1 + n) * SECOND, index=0, uuid="GPU-0", power_w=power_w + n)
          for n in range(100)),
    ]  # fmt: skip
    writer.write_session(session, records, Meta(cluster="pod"))
    return session


def text_of(pilot: Pilot[None]) -> str:
    strips = painted(pilot.app)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def shows(pilot: Pilot[None], *texts: str) -> None:
    for _ in range(600):
        if all(text in text_of(pilot) for text in texts):
            return
        await pilot.pause(0.05)
    raise AssertionError(f"{texts} not on the screen:\n{text_of(pilot)}")


@pytest.mark.parametrize("width", range(20, 201, 9))
@pytest.mark.parametrize("order", ["name", "change"])
def test_no_line_is_wider_than_the_screen(width: int, order: str):
    lines = difference_lines(difference(None), width, order)
    assert max(width_of(line.text) for line in lines) <= width


def test_largest_change_is_listed_first_and_one_sided_metrics_last():
    lines = [line.text.split()[:2] for line in difference_lines(difference(None), 80, "change")]
    names = [" ".join(line) for line in lines if line and line[0] in ("gpu", "nic")]
    assert names[:3] == ["gpu nvlink_tx_bytes_s", "gpu util_pct", "gpu power_w"]
    assert names[-1] == "nic rx_bytes_s"


def test_identical_sessions_report_no_differences():
    same = Comparison(schema="gconsole.diff/1", a="a", b="b", nodes_only_a=(), nodes_only_b=(), changed=(),
                      findings_only_a=(), findings_only_b=(), findings_both=(), figures=())  # fmt: skip
    assert not same.is_different
    assert "no differences in" in "".join(span.text for span in headline(same))
    assert [line.text for line in difference_lines(same, 80, "name")].count("  no differences") == 4


async def test_diff_screen_keys_sort_copy_show_help_and_quit(tmp_path):
    monday, tuesday = (
        write_diff_session(tmp_path, "monday"),
        write_diff_session(tmp_path, "tuesday", kernel="6.8", power_w=450.0),
    )
    app = DiffApp(diff_of(monday, tuesday))
    async with app.run_test(size=(120, 30)) as pilot:
        await shows(pilot, "monday → tuesday", "kernel  5.15 → 6.8", "gpu power_w", "+43.0 %", "METRICS  by name")
        await pilot.press("o")
        await shows(pilot, "METRICS  by change")
        await pilot.press("y")
        assert "kernel  5.15 → 6.8" in app.clipboard
        await pilot.press("question_mark")
        assert isinstance(app.screen, KeysDialog)
        await pilot.press("escape")
        assert isinstance(app.screen, DiffScreen)
        await pilot.press("q")
    assert app.comparison is not None
    assert app.comparison.is_different


async def test_escape_while_reading_cancels_the_comparison(tmp_path):
    goes_on = threading.Event()
    (tmp_path / "nothing.ndjson").touch()

    def slow(queries: QueryWorkerClient) -> Comparison:
        goes_on.wait(30)
        queries.query(ENDLESS, tmp_path / "nothing.ndjson", limit=None, deadline_s=600.0)
        raise AssertionError("not cancelled")

    app = DiffApp(DiffScreen("monday", "tuesday", slow))
    async with app.run_test() as pilot:
        await shows(pilot, "reading both sessions")
        await pilot.press("escape")
        goes_on.set()
    assert app.comparison is None


async def test_damaged_session_is_reported_and_not_compared(tmp_path):
    monday, tuesday = write_diff_session(tmp_path, "monday"), write_diff_session(tmp_path, "tuesday")
    (segment,) = tuesday.segments()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    app = DiffApp(diff_of(monday, tuesday))
    async with app.run_test() as pilot:
        for _ in range(600):
            if app.error:
                break
            await pilot.pause(0.05)
    assert "verify" in app.error
    assert app.comparison is None


async def test_replay_is_compared_with_a_session_entered_by_name(tmp_path):
    monday = write_diff_session(tmp_path, "monday")
    write_diff_session(tmp_path, "tuesday", kernel="6.8")
    app = ReplayApp(Replay(monday))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.frames.is_current)
        await app.run_action("replay.compare")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        await pilot.press(*"nobody", "enter")
        await until(pilot, lambda: any("nobody" in note.message for note in app._notifications))
        await app.run_action("replay.compare")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        await pilot.press(*"tuesday", "enter")
        await until(pilot, lambda: "5.15 → 6.8" in screen_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)


def test_diff_opens_a_screen_and_its_exit_code_reports_differences(tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    write_diff_session(tmp_path, "monday")
    write_diff_session(tmp_path, "tuesday", kernel="6.8")
    terminal = Tmux(env={**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(tmp_path)}, columns=100, rows=30)
    try:
        terminal.until("ready>")
        terminal.press(f"{GCONSOLE} diff monday tuesday; echo code $?", "Enter")
        terminal.until("─ METRICS", "5.15 → 6.8", "q close")
        terminal.press("q")
        terminal.until("code 1")
        terminal.press("clear", "Enter")
        terminal.press(f"{GCONSOLE} diff monday monday --text; echo code $?", "Enter")
        terminal.until("monday → monday", "code 0")
    finally:
        terminal.close()


def test_hostile_session_names_are_stripped_of_escape_sequences():
    hostile = msgspec.structs.replace(difference(None), findings_only_a=("x\x1b[2J[bold]y",), a="\x1b]0;t\x07a")
    text = "\n".join(line.text for line in difference_lines(hostile, 80, "name"))
    assert "\x1b" not in text
    assert "[bold]y" in text
