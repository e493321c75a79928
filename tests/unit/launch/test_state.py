"""Combined state of a job on many nodes, and the exit code for scripts."""

from __future__ import annotations

import pytest

from gconsole.core.store import Store
from gconsole.launch.state import job_state, job_status
from gconsole.records import Job, JobNode, NodeState


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        (["running", "running"], "running"),
        (["dispatching", "running"], "dispatching"),
        (["completed", "running"], "running"),
        (["failed", "running"], "partial"),
        (["stopped", "running"], "partial"),
        (["stopping", "stopped"], "stopping"),
        (["completed", "completed"], "completed"),
        (["completed", "failed"], "failed"),
        (["stopped", "failed"], "failed"),
        (["stopped", "completed"], "stopped"),
        (["completed", None], "partial"),
        (["running", None], "running"),
    ],
)
def test_job_state_is_derived_from_the_node_states(states, whole):
    assert job_state(states) == whole


def a_store(*nodes: JobNode, lost: tuple[str, ...] = ()) -> Store:
    store = Store()
    names = [record.node for record in nodes]
    store.apply([NodeState(node=name, state="lost" if name in lost else "ok") for name in names])
    store.apply([
        Job(node=names[0], job="j", command=("t.py",), launcher="torchrun", nodes=tuple(names), procs_per_node=1,
            gpus_per_node=0, world_size=len(names), master_addr="10.0.0.1", master_port=1, created=1),
        *nodes,
    ])  # fmt: skip
    return store


def test_job_exit_code_is_that_of_the_node_that_failed_first():
    store = a_store(
        JobNode(node="a", job="j", index=0, state="failed", exit_code=1, ended=200),
        JobNode(node="b", job="j", index=1, state="failed", signal=9, ended=100),
    )
    assert job_status(store, "j").exit_code == 137


def test_stopped_job_has_the_exit_code_of_sigterm():
    store = a_store(JobNode(node="a", job="j", index=0, state="stopped", exit_code=0, ended=1))
    assert job_status(store, "j").exit_code == 143


def test_job_with_a_lost_node_is_not_over_and_lists_that_node():
    store = a_store(
        JobNode(node="a", job="j", index=0, state="completed", exit_code=0),
        JobNode(node="b", job="j", index=1, state="running"),
        lost=("b",),
    )
    view = job_status(store, "j")
    assert (view.is_over, view.unseen, view.state) == (False, ("b",), "partial")


def test_job_output_is_not_an_event():
    from gconsole.records import Log

    store = a_store(JobNode(node="a", job="j", index=0, state="running"))
    before = len(store.events)
    store.apply([Log(node="a", source="job", job="j", rank=0, text="loss 2.31")])
    assert len(store.events) == before
    assert [record.text for record in store.jobs.output.since(-1)] == ["loss 2.31"]
