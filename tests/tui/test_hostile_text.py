"""Hostile names from a node are displayed as text, on their line and in their cells, in every view and dialog."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_cluster import FakeCluster
from pictures import assert_rectangular
from running import running
from screen_states import STATES, ScreenState, Stage
from waiting import screen, settle, shows

from gconsole.records import Gap, Log, Mark, Missing, Node
from gconsole.tui.app import ConsoleApp

MARKUP = "[bold red]x[/] [@click=app.quit]y[/]"
ANSI = "\x1b[2J\x1b[31mred\x1b]0;title\x07 \x9b31m"
WIDE = "漢字カタカナ한글" * 8
COMBINING = "e" + "\u0301" * 200 + "\u0336" * 200
BIDI = "\u202eabc\u2066שלום\u2069 مرحبا"
LINES = "one\ntwo\r\nthree\x0b\x0cfour\u2028five\ttab"
EMOJI = "👩‍👩‍👧‍👦🏴‍☠️\ufe0f"
#: Each with its screen size.
HOSTILE = {
    "obeyed by a terminal": (f"{ANSI}\x00\x7f {LINES}", (60, 20)),
    "obeyed by Textual": (MARKUP, (80, 24)),
    "wider or narrower than it looks": (f"{WIDE}{COMBINING}{EMOJI}", (60, 20)),
    "wide at every place": ("漢" * 200, (80, 24)),
    "from right to left": (BIDI * 9, (120, 40)),
    "four kilobytes": ("x" * 4096, (60, 20)),
    "nothing": ("", (80, 24)),
}


def hostile(text: str) -> FakeCluster:
    """A cluster on which every text that a node can choose is this one."""
    name = text or "job"
    cluster = FakeCluster("node1", "node2", "node3", cluster=name)
    cluster.python_version = text
    cluster.up("node1", missing=(Missing(text, text, text),))
    cluster.publish(
        Node(
            node="node1", hostname=text, boot_id=text, kernel=text, arch=text, python=text, os=text, cpus=1,
            mem_total_bytes=1, uid=1, user=text, pid=1, sample_interval_ms=1, missing=(Missing(text, text, text),),
            capabilities=(text, text),
        )
    )  # fmt: skip
    cluster.gpus("node1")
    cluster.fail("node2", "auth", text, text)
    cluster.lose("node3", text, text)
    cluster.job(name, 3, per_node=4, launcher=text, source=text, gpu=text)
    cluster.job(f"other {name}", 3, per_node=4)
    cluster.sample_rank(name, 1, "node1", "uninterruptible", wchan=text)
    cluster.rank(name, 3, "node1", 4, status="no_permission", reason=text, pid=99)
    cluster.process("node1", 0, text)
    cluster.finding("slow", "warning", text, [text, "node1"], victims=(text,), evidence=(text,))
    cluster.publish(
        Log(node="node1", source=text, severity="error", text=text, try_=text),
        Gap(node="node1", source=text, reason=text),
        Mark(text=text),
    )
    return cluster


async def assert_no_line_breaks(text: str, size: tuple[int, int], states: Sequence[ScreenState]) -> None:
    """Open these states, with that text for everything that a node can name, on a terminal of that size."""
    cluster = hostile(text)
    app = cluster.app()
    async with app.run_test(size=size, notifications=True) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        for state in states:
            await state.open(stage)
            await stage.settle()
            assert_rectangular(app)
            await stage.go_home()
        app.notify(f"{text}!", timeout=600, markup=False)
        await pilot.pause()
        assert_rectangular(app)


@pytest.mark.full
@pytest.mark.parametrize("kind", HOSTILE)
async def test_node_text_does_not_break_the_layout_of_any_view_or_dialog(kind: str):
    await assert_no_line_breaks(*HOSTILE[kind], STATES)


@pytest.mark.full  # each of them is shown everywhere by the test above, and in every 14th state by the one below
@pytest.mark.parametrize("part", range(4))
async def test_all_hostile_texts_combined_do_not_break_any_view_or_dialog(part: int):
    everything = " ".join(text[:300] for text, _ in HOSTILE.values())
    await assert_no_line_breaks(everything, (60, 20), STATES[part::4])


@pytest.mark.parametrize("kind", HOSTILE)
async def test_each_hostile_text_does_not_break_every_14th_screen_state(kind: str):
    await assert_no_line_breaks(*HOSTILE[kind], STATES[2 * list(HOSTILE).index(kind) :: 2 * len(HOSTILE)])


async def test_markup_in_node_text_is_displayed_literally():
    app = hostile(MARKUP).app()
    async with running(app, size=(120, 40)) as pilot:
        assert MARKUP in screen(app)
        await pilot.press("shift+tab", "enter")
        await shows(pilot, "[@click=app.quit]y[/]")


async def test_hostile_names_do_not_break_completion_or_filter_recall():
    cluster = hostile('[red]\x1b[31m "x" ' + "y" * 4096)
    app: ConsoleApp = cluster.app()
    async with running(app, "2", "slash", *"job:", size=(60, 20)) as pilot:
        for key in ("tab", "tab", "enter", "escape", "slash", "ctrl+r"):
            await pilot.press(key)
            await pilot.pause()
            assert_rectangular(app)
