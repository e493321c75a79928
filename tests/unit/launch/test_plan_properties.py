"""Properties of launch plans on random fleets: a plan fits the request, and a refusal is justified."""

from __future__ import annotations

import pytest
from builders import a_node, answers
from hypothesis import given
from hypothesis import strategies as st

from gconsole.launch.plan import LaunchPlan, Refusal, plan
from gconsole.launch.request import JobRequest

nodes_of_any_sort = st.lists(
    st.tuples(
        st.integers(0, 8), st.integers(0, 8), st.sampled_from([None, "lost"]), st.booleans(),
        st.sampled_from(["570", "535"]), st.floats(0, 100),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


def the_fleet(drawn):
    return [
        a_node(number, gpus=gpus, taken=min(taken, gpus), why_not=why_not, errors=("broken",) if error else (),
               versions=(driver,), cpu_pct=cpu)
        for number, (gpus, taken, why_not, error, driver, cpu) in enumerate(drawn)
    ]  # fmt: skip


@pytest.mark.slow
@given(nodes_of_any_sort, st.integers(1, 10), st.integers(0, 8), st.integers(1, 4))
def test_plan_meets_the_request_and_refusal_means_too_few_suitable_nodes(drawn, wanted, gpus, procs):
    nodes = the_fleet(drawn)
    request = JobRequest(("train.py",), nodes=wanted, gpus_per_node=gpus, procs_per_node=procs)
    found = plan(request, "j", nodes, answers(nodes), created=1)
    can = {
        node.name: [gpu.uuid for gpu in node.gpus if gpu.why_not is None] for node in nodes
        if node.why_not is None and not node.errors and sum(gpu.why_not is None for gpu in node.gpus) >= gpus
    }  # fmt: skip
    left_out_names = {name for name, _ in found.left_out}
    if len(can) < wanted:
        assert isinstance(found, Refusal)
        assert left_out_names == {node.name for node in nodes}
        return
    assert isinstance(found, LaunchPlan)
    assert len(found.orders) == wanted
    assert left_out_names == {node.name for node in nodes} - set(found.orders)
    ranks = []
    for name, order in found.orders.items():
        assert len(order.gpus) == gpus
        assert set(order.gpus) <= set(can[name])
        assert order.world_size == wanted * procs
        ranks += range(order.index * procs, (order.index + 1) * procs)
    assert sorted(ranks) == list(range(wanted * procs))
    assert len({(order.master_addr, order.master_port) for order in found.orders.values()}) == 1


@pytest.mark.slow
@given(nodes_of_any_sort, st.integers(1, 10), st.integers(1, 8))
def test_every_change_that_a_refusal_suggests_makes_a_plan(drawn, wanted, gpus):
    nodes = the_fleet(drawn)
    found = plan(JobRequest(("t.py",), nodes=wanted, gpus_per_node=gpus), "j", nodes, answers(nodes), created=1)
    for change in found.change if isinstance(found, Refusal) else ():
        option, value = change.split(":")[0].split(" ")
        other = {"--nodes": {"nodes": int(value)}, "--gpus-per-node": {"gpus_per_node": int(value)}}[option]
        request = JobRequest(("t.py",), **{"nodes": wanted, "gpus_per_node": gpus, **other})
        assert isinstance(plan(request, "j", nodes, answers(nodes), created=1), LaunchPlan), change
