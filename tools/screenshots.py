"""Draw the screenshots of the documentation, from fake clusters and from the demo: `python tools/screenshots.py`.

Each is written as docs/NAME.svg. `--check` writes nothing and exits with 1 if one of a fake cluster shows other text
than today's screen.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "tui"), str(ROOT / "tests" / "unit")]

from clusters import busy_cluster  # noqa: E402
from fake_cluster import SECOND, FakeCluster  # noqa: E402
from waiting import settle, shows  # noqa: E402

from gconsole.config import load  # noqa: E402
from gconsole.core.store import Store  # noqa: E402
from gconsole.demo import demo_cluster  # noqa: E402
from gconsole.runtime.console import Console  # noqa: E402
from gconsole.tui.app import ConsoleApp  # noqa: E402

#: Seconds of samples before the pictures, between two of them, and between two steps; and of the stall at the end.
HISTORY_S, SAMPLE_S, STEP_S, STALLED_S = 300, 5, 10, 29


def running_pod() -> FakeCluster:
    """The busy cluster, whose job has run for five minutes and then stalled, so that trends are known."""
    before = FakeCluster(*(f"node{number:03}" for number in range(1, 65)))
    before.store = Store(64 << 20)
    before.now_ns -= HISTORY_S * SECOND
    before.up()
    step = 18_204 - (HISTORY_S - STALLED_S) // STEP_S
    before.rank("llama-70b", 0, "node001", 512, step=step)
    for second in range(0, HISTORY_S, SAMPLE_S):
        is_stalled = second > HISTORY_S - STALLED_S
        wave = (second * 7 // SAMPLE_S) % 5
        for number, name in enumerate(before.names):
            if name != "node033":  # the others spin in a collective during the stall
                before.gpus(name, util=[94.0 + (wave + number) % 5])
        step += not is_stalled and second % STEP_S == 0
        before.sample_rank("llama-70b", 0, "node001", step=step)
        before.advance(SAMPLE_S)
    return busy_cluster(before)


class Picture(NamedTuple):
    """A screen: its cluster, its size in cells, the keys that lead to it, and a text that it has then."""

    cluster: Callable[[], FakeCluster]
    size: tuple[int, int]
    keys: Sequence[str]
    text: str


PICTURES = {
    "overview-60x20": Picture(running_pod, (60, 20), (), "rank_blocked"),
    "overview-80x24": Picture(running_pod, (80, 24), (), "rank_blocked"),
    "overview-120x36": Picture(running_pod, (120, 36), (), "rank_blocked"),
    "overview-200x60": Picture(running_pod, (200, 60), (), "rank_blocked"),
    "ranks": Picture(busy_cluster, (120, 24), ("2",), "wchan"),
}
#: Screens of `gconsole demo` with a hung job, which are never the same twice: the size, the keys, and a text.
LIVE = {"hang": ((120, 36), ("3",), "confidence"), "gpu": ((120, 36), ("6", "enter"), "GPU util")}
#: Seconds of progress of the demo's job before it hangs.
PROGRESS_S = 25.0


async def draw(picture: Picture) -> str:
    """The screen as SVG."""
    app = picture.cluster().app()
    async with app.run_test(size=picture.size) as pilot:
        await settle(pilot)
        for key in picture.keys:
            await pilot.press(key)
            await settle(pilot)
        await shows(pilot, picture.text)
        await settle(pilot)
        return app.export_screenshot(title="gconsole")


async def draw_live() -> dict[str, str]:
    """The screens of the demo as SVG, by their names."""
    pictures = {}
    with demo_cluster(4, 8, 8, "dataloader") as cluster:
        config = load(str(cluster.hosts), environ={})
        console = Console(config, own_checks=True, black_box=False)
        app = ConsoleApp(
            console.store, console.fleet, cluster=config.cluster, expected_nodes=[node.name for node in config.nodes],
            on_start=console.start, findings=console.findings, stalls=console.stalls,
        )  # fmt: skip
        async with app.run_test(size=(120, 36)) as pilot:
            await asyncio.sleep(PROGRESS_S)
            cluster.trigger_hang()
            await shows(pilot, "waits for its data")
            for name, (size, keys, text) in LIVE.items():
                await pilot.resize_terminal(*size)
                await pilot.press(*keys)
                await shows(pilot, text)
                await settle(pilot)
                pictures[name] = app.export_screenshot(title="gconsole demo")
        await console.stop()
    return pictures


def without_folder(svg: str) -> str:
    """The picture with another folder in the place of this checkout; the rows keep their widths."""
    here, other = str(ROOT), "/opt/gconsole"
    pad = "&#160;" * (len(here) - len(other)) if len(here) > len(other) else ""
    return re.sub(rf"{re.escape(here)}(.*?)</text>", lambda match: f"{other}{match[1]}{pad}</text>", svg)


def text_of(svg: str) -> list[str]:
    """What a screenshot shows, row by row, without colours."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)]


def main() -> int:
    parser = argparse.ArgumentParser("screenshots", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a screenshot is outdated")
    is_check = parser.parse_args().check
    os.environ["TZ"] = "UTC"
    time.tzset()
    outdated = []
    for name, picture in PICTURES.items():
        path, svg = ROOT / "docs" / f"{name}.svg", asyncio.run(draw(picture))
        if not path.exists() or text_of(path.read_text()) != text_of(svg):
            outdated.append(name)
            if not is_check:
                path.write_text(svg)
    if not is_check:
        for name, svg in asyncio.run(draw_live()).items():
            (ROOT / "docs" / f"{name}.svg").write_text(without_folder(svg))
    print(f"outdated: {', '.join(outdated)}" if is_check and outdated else f"{len(PICTURES)} screenshots")
    return 1 if is_check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
