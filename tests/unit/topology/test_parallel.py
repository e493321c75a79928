"""Parallel groups of a job over nodes and GPUs, from captures."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess

import msgspec
import pytest
from machines import hgx_facts

from gconsole.analysis.collectives.align import Membership, memberships
from gconsole.core.store import Store
from gconsole.monitor import topology
from gconsole.monitor.topology import TopologyFold
from gconsole.records import Collective, PgStatus, Rank, RankStat
from gconsole.topology.formats import FORMATS, to_dot, to_svg
from gconsole.topology.snapshot import gather
from gconsole.topology.text import to_text

JOB = "llama"


def pg(rank, name, desc, ranks=None, capture="c1", **more):
    known = {"source": "worker_server", "job": JOB, "rank": rank, "process_group": (name, desc), "ranks": ranks}
    return PgStatus(node=f"n{rank // 8}", capture=capture, **(known | more))


def a_pod(*records, nodes=2, job=JOB):
    """Nodes with eight GPUs and a rank on each, and these records of captures."""
    store = Store()
    for number in range(nodes):
        facts = hgx_facts(f"n{number}")
        for record in (*facts.gpus, *facts.links, *facts.nics):
            record.node = facts.node
            store.apply([record])
    for number in range(8 * nodes):
        store.apply([Rank(node=f"n{number // 8}", job=job, rank=number, local_rank=number % 8, gpu=str(number % 8),
                          pid=number, start_ticks=1, world_size=8 * nodes, source="environ")])  # fmt: skip
    store.apply(records)
    return store


def mesh(nodes=2):
    """Tensor groups within half a node, data groups across nodes; every rank reports its own, as PyTorch does."""
    found = []
    for rank in range(8 * nodes):
        half, own = rank // 4 * 4, rank % 8
        found.append(pg(rank, "0", "default_pg", tuple(range(8 * nodes))))
        found.append(pg(rank, str(10 + half), "mesh_tp", tuple(range(half, half + 4))))
        found.append(pg(rank, str(90 + own), "mesh_dp", tuple(range(own, 8 * nodes, 8))))
    return found


# -- group membership --------------------------------------------------------------------------------------------------


def test_group_members_are_the_listed_ranks_or_else_the_reporting_ranks():
    records = [pg(0, "1", "tp", (0, 1)), pg(0, "2", "pp"), pg(3, "2", "pp")]

    assert memberships((), records, (JOB, 0)) == (
        Membership("1", "tp", (0, 1), True), Membership("2", "pp", (0, 3), False))  # fmt: skip


def test_groups_are_inferred_from_collectives_unless_pytorch_names_them():
    entries = [Collective(capture="c", source="nccl_log", job=JOB, rank=rank, process_group=("0xab", ""),
                          group_size=2, profiling_name="nccl:AllReduce") for rank in (4, 5)]  # fmt: skip

    assert memberships(entries, (), (JOB, 0)) == (Membership("0xab", "", (4, 5), True),)
    # where PyTorch names a group, NCCL's communicator is the same group
    assert [membership.name for membership in memberships(entries, [pg(0, "1", "tp", (0, 1))], (JOB, 0))] == ["1"]


def test_groups_are_separate_per_job_and_attempt():
    records = [pg(0, "1", "tp", (0, 1)), pg(0, "2", "tp", (0, 1), job="eval"), pg(0, "3", "tp", attempt=1)]

    assert [membership.name for membership in memberships((), records, (JOB, 1))] == ["3"]


# -- groups on the topology --------------------------------------------------------------------------------------------


def test_groups_are_labelled_by_description_and_numbered_by_their_ranks():
    groups = gather(a_pod(*mesh())).groups

    assert [group.label for group in groups] == [
        *(f"mesh_dp {n}" for n in range(8)), *(f"mesh_tp {n}" for n in range(4)), "default_pg"]  # fmt: skip
    assert groups[9].ranks == (4, 5, 6, 7)


def test_numbered_group_description_is_kept_and_an_undefined_one_is_replaced():
    statuses = [pg(0, "5", "dp_17", (0, 1)), pg(2, "6", "dp_3", (2, 3)), pg(4, "7", "undefined", (4, 5))]

    found = [(group.kind, group.label) for group in gather(a_pod(*statuses)).groups]

    assert found == [("dp", "dp_17"), ("dp", "dp_3"), ("group", "group")]


def test_node_text_lists_the_groups_and_ranks_of_each_gpu():
    text = to_text(gather(a_pod(*mesh())), "n1")

    row = next(line for line in text.splitlines() if line.startswith("GPU5 "))
    assert row.endswith("13     mesh_dp 5 · mesh_tp 3")
    assert "rank 13 in mesh_dp 5 · mesh_tp 3" in text


def test_class_matrix_counts_groups_that_differ_between_nodes():
    text = to_text(gather(a_pod(*mesh())))

    row = next(line for line in text.splitlines() if line.startswith("GPU5 "))
    assert row.endswith("5,13   mesh_dp 5 · mesh_tp ×2")


def test_group_list_has_placement_and_the_farthest_relation_within_a_group():
    lines = [" ".join(line.split()) for line in to_text(gather(a_pod(*mesh()))).splitlines()]

    assert "mesh_tp 4 groups of 4 ranks; each within one node" in lines
    assert "mesh_dp 8 groups of 2 ranks; each over 2 nodes" in lines
    assert 'mesh_tp 1 [4-7] "14" n0 GPU4-7, NV18' in lines
    assert 'mesh_dp 3 [3,11] "93" 2 nodes n[0-1], GPU3 of each' in lines
    assert 'default_pg 1 group of 16 ranks, [0-15] "0" 2 nodes n[0-1], GPU0-7 of each' in lines


def test_group_spanning_nodes_is_counted_apart_from_single_node_groups():
    odd = [pg(0, "1", "tp", (0, 1)), pg(2, "2", "tp", (2, 3)), pg(4, "3", "tp", (4, 9))]

    lines = [" ".join(line.split()) for line in to_text(gather(a_pod(*odd))).splitlines()]

    assert "tp 3 groups of 2 ranks; 2 within one node, 1 over 2 nodes" in lines


def test_members_that_are_on_no_known_gpu_are_counted():
    fleet = gather(a_pod(pg(0, "1", "tp", (0, 1, 40, 41))))

    assert fleet.group_placement.span(fleet.groups[0]) == "n0 GPU0-1, NV18; 2 of 4 on no known GPU"


def test_text_without_groups_suggests_running_a_capture():
    assert "none known; run a capture to read them" in to_text(gather(a_pod()))
    two = a_pod(*mesh())
    two.apply([Rank(node="n0", job="eval", rank=0, gpu="0", pid=99, start_ticks=1, source="environ")])
    assert "  eval: none known; run a capture to read them" in to_text(gather(two))


def test_groups_come_from_the_newest_capture_of_the_job():
    fleet = gather(a_pod(*mesh(), pg(0, "77", "tp", (0, 1), capture="c2")))

    assert [group.name for group in fleet.groups] == ["77"]


def test_json_document_has_the_groups_of_the_fleet_or_of_one_node():
    fleet = gather(a_pod(*mesh()))
    whole, one = (json.loads(FORMATS["json"](fleet, node)) for node in (None, "n1"))

    assert len(whole["groups"]) == 13
    tp = next(group for group in one["groups"] if group["kind"] == "mesh_tp")
    assert (tp["label"], tp["ranks"], tp["nodes"], tp["relation"]) == ("mesh_tp 2", [8, 9, 10, 11], ["n1"], "NV18")
    gpu = next(device for device in whole["nodes"][0]["devices"] if device["label"] == "GPU3")
    assert gpu["groups"] == ["mesh_dp 3", "mesh_tp 0", "default_pg"]


def test_drawings_have_the_groups_on_their_gpus():
    fleet = gather(a_pod(*mesh()))

    assert "rank 3\\nmesh_dp 3 · mesh_tp 0" in to_dot(fleet, "n0")
    assert "rank 3 mesh_dp 3 · mesh_tp 0" in to_svg(fleet, "n0")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=to_dot(fleet, "n0"), capture_output=True, text=True, check=True)


@pytest.mark.parametrize("form", FORMATS)
def test_control_characters_in_group_names_are_removed_in_every_format(form):
    hostile = 'evil"]; \x1b[31m&<b>\n'

    text = FORMATS[form](gather(a_pod(pg(0, hostile, hostile, (0, 1)))), "n0")

    assert "\x1b" not in text


async def test_new_capture_updates_the_groups_without_rebuilding_the_nodes():
    store = a_pod()
    fold = TopologyFold(store)
    fold.note()
    await fold.derived.update()
    before = fold.fleet
    store.apply(mesh())
    fold.note()
    await fold.derived.update()

    assert fold.fleet.nodes is before.nodes
    assert (len(before.groups), len(fold.fleet.groups)) == (0, 13)
    assert not fold.has_news


async def test_a_copy_frozen_during_an_update_has_the_groups_that_the_update_adds(monkeypatch):
    monkeypatch.setattr(topology, "MANY_RANKS", 1)  # the update runs in a thread
    monkeypatch.setattr(topology, "EVERY_S", 0.0)
    store, updates = a_pod(), []
    fold = TopologyFold(store)
    fold.note()
    await fold.derived.update()
    store.apply(mesh())
    fold.derived.refresh(updates.append)

    still = fold.still()
    await still.derived.update()
    await updates[0]

    assert len(still.fleet.groups) == len(fold.fleet.groups) == 13


async def test_a_cancelled_update_is_repeated_with_its_nodes_and_groups(monkeypatch):
    monkeypatch.setattr(topology, "MANY_RANKS", 1)  # the update runs in a thread
    store = a_pod(*mesh())
    fold = TopologyFold(store)
    fold.note()
    update = asyncio.create_task(fold.derived.update())
    await asyncio.sleep(0)
    update.cancel()
    await asyncio.wait({update})
    assert update.cancelled() and not fold.fleet.nodes

    await fold.derived.update()

    assert (len(fold.fleet.nodes), len(fold.fleet.groups)) == (2, 13)


async def test_figures_of_ranks_are_no_news_and_a_new_rank_is(monkeypatch):
    monkeypatch.setattr(topology, "EVERY_S", 0.0)
    store = a_pod(*mesh())
    fold = TopologyFold(store)
    fold.note()
    await fold.derived.update()
    rank = next(iter(store.ranks.values())).rank
    store.apply([RankStat(node=rank.node, job=JOB, rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks,
                          state="moving", cpu_pct=12.0)])  # fmt: skip
    fold.note()
    assert not fold.derived.has_news

    store.apply([msgspec.structs.replace(rank, pid=rank.pid + 1000, rank=77)])
    fold.note()
    assert fold.derived.has_news
