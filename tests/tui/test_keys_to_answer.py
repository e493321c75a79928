"""How many keys lead to the answers to the usual questions, at two usual sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from clusters import busy_cluster, clock_cluster, pod
from fake_cluster import FakeCluster
from running import running
from topologies import odd_pod
from waiting import screen, settle, shows, until

from gconsole.records import Gpu
from gconsole.text.cells import width_of

SIZES = [(80, 24), (120, 40)]


def hot() -> FakeCluster:
    """The pod with one GPU that is hotter than the others, far down in the list."""
    cluster = pod()
    cluster.publish(Gpu(node="node047", index=5, uuid="GPU-node047-5", temp_c=93.0, util_pct=40.0))
    return cluster


@dataclasses.dataclass
class Question:
    """The keys that lead from the Overview to a screen that contains all of `answer`, and what they copied."""

    name: str
    cluster: Callable[[], FakeCluster]
    keys: Sequence[str]
    most: int
    answer: Sequence[str]
    copied: str = ""


QUESTIONS = [
    Question("who hangs", busy_cluster, [], 0, ["rank_blocked", "rank 137 sleeps in nfs_wait_bit_killable"]),
    Question("hottest GPU", hot, ["6", "T"], 2, ["node047", "93"]),
    Question("differing node", odd_pod, ["5"], 1, ["node044", "GPU4"]),
    Question(
        "stacks to share", pod, ["s", "y"], 3, ["capture 1 of 1", "copied"], "all_reduce  distributed_c10d.py:3252"
    ),
    Question("late rank", clock_cluster, ["4"], 2, ["17 node018"]),
    Question("one node", busy_cluster, ["n", "enter"], 2, ["─ node001"]),
    Question("host name", busy_cluster, ["y"], 1, ["copied"], "node001"),
    Question("record", busy_cluster, ["r", "enter"], 2, ["● REC"]),
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name.replace(" ", "_"))
async def test_answer_is_on_the_screen_after_the_fewest_keys(question: Question, size: tuple[int, int]):
    assert len(question.keys) <= question.most
    app = question.cluster().app()
    async with running(app, size=size, toasts=True) as pilot:
        for key in question.keys:
            await pilot.press(key)
            await settle(pilot)
        for text in question.answer:
            await shows(pilot, text)
        assert question.copied in app.clipboard


async def test_hottest_gpu_is_the_first_row():
    app = hot().app()
    async with running(app, "6", "T", size=SIZES[0]) as pilot:
        await until(pilot, lambda: app.view.selected_node == "node047")
        rows = [line for line in screen(app).splitlines() if "node0" in line]
        assert "node047" in rows[0] and "93" in rows[0]
        await pilot.press("enter", "T")
        await until(pilot, lambda: not app.view.is_paged)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 60)])
async def test_verdict_progress_and_failed_node_are_on_every_overview(size: tuple[int, int]):
    app = busy_cluster().app()
    async with running(app, size=size) as pilot:
        await shows(pilot, "step 18,204")
        await shows(pilot, "rank_blocked")
        await shows(pilot, "node[001-064]")
        assert all(width_of(line) <= size[0] for line in screen(app).splitlines())
