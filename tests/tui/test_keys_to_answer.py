"""How many keys lead to the answers to the usual questions, at the size that most terminals have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from clusters import busy_cluster, clock_cluster, pod
from fake_cluster import FakeCluster
from running import running
from test_topology import odd_pod
from waiting import screen, shows, until

from gconsole.records import Gpu
from gconsole.text.cells import width_of

SIZE = (80, 24)


def hot() -> FakeCluster:
    """The pod with one GPU that is hotter than the others, far down in the list."""
    cluster = pod()
    cluster.publish(Gpu(node="node047", index=5, uuid="GPU-node047-5", temp_c=93.0, util_pct=40.0))
    return cluster


@dataclasses.dataclass
class Question:
    """The keys that lead to a screen that contains all of `answer`."""

    name: str
    cluster: Callable[[], FakeCluster]
    keys: Sequence[str]
    most: int
    answer: Sequence[str]


QUESTIONS = [
    Question("who hangs", busy_cluster, [], 0, ["rank_blocked", "rank 137 sleeps in nfs_wait_bit_killable"]),
    Question("hottest GPU", hot, ["6", "T"], 2, ["93"]),
    Question("differing node", odd_pod, ["5"], 1, ["node044", "GPU4"]),
    Question("late rank", clock_cluster, ["4"], 2, ["17 node018"]),
    Question("one node", busy_cluster, ["n", "enter"], 2, ["─ node001"]),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name.replace(" ", "_"))
async def test_answer_is_on_the_screen_after_the_fewest_keys(question: Question):
    assert len(question.keys) <= question.most
    async with running(question.cluster().app(), *question.keys, size=SIZE) as pilot:
        for text in question.answer:
            await shows(pilot, text)


async def test_hottest_gpu_is_the_first_row():
    app = hot().app()
    async with running(app, "6", "T", size=SIZE) as pilot:
        await until(pilot, lambda: app.view.selected_node == "node047")
        rows = [line for line in screen(app).splitlines() if "node0" in line]
        assert "node047" in rows[0] and "93" in rows[0]
        await pilot.press("enter", "T")
        await until(pilot, lambda: not app.view.is_paged)


async def test_host_name_is_copied_with_one_key():
    app = busy_cluster().app()
    async with running(app, size=SIZE) as pilot:
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard == "node001")


async def test_record_begins_with_two_keys():
    cluster = busy_cluster()
    async with running(cluster.app(), "r", "enter", size=SIZE) as pilot:
        await until(pilot, lambda: any(call == "record" for call, _ in cluster.calls))


async def test_stacks_are_on_the_clipboard_after_three_keys():
    cluster = pod()
    app = cluster.app()
    async with running(app, "s", size=SIZE) as pilot:
        await shows(pilot, "capture 1 of 1")
        await pilot.press("y")
        await until(pilot, lambda: "llama-70b" in app.clipboard)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 60)])
async def test_verdict_progress_and_failed_node_are_on_every_overview(size: tuple[int, int]):
    app = busy_cluster().app()
    async with running(app, size=size) as pilot:
        await shows(pilot, "step 18,204")
        await shows(pilot, "rank_blocked")
        await shows(pilot, "node[001-064]")
        assert all(width_of(line) <= size[0] for line in screen(app).splitlines())
