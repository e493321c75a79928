"""Launch plan: which nodes get the job, why others do not, and which smaller request would fit."""

from __future__ import annotations

from builders import GIB, a_gpu, a_node, an_answer, answers

from gconsole.core.job_protocol import PythonFacts, SyncFile, SyncFolder
from gconsole.core.store import Store
from gconsole.launch.format import plan_text, refusal_text
from gconsole.launch.node_capacity import node_facts
from gconsole.launch.plan import LaunchPlan, PreflightNeeded, Refusal, plan
from gconsole.launch.request import JobRequest, new_job, python_check
from gconsole.records import AgentCost, ClockSource, Finding, GpuInfo, Host, NodeState, Record

TRAIN = ("train.py", "--lr", "1")


def planned(request: JobRequest, nodes, ready=None) -> LaunchPlan | Refusal | PreflightNeeded:
    return plan(request, "train-1", nodes, answers(nodes) if ready is None else ready, created=1)


def test_a_plan_has_ranks_master_and_the_exact_command_of_each_node():
    found = planned(JobRequest(TRAIN, nodes=2, gpus_per_node=4), [a_node(1), a_node(2), a_node(3)])
    assert list(found.orders) == ["node001", "node002"]
    second = found.orders["node002"]
    assert (second.world_size, second.index, second.master_addr, second.master_port) == (8, 1, "10.0.0.2", 29500)
    [command] = second.commands
    assert command.argv == (
        "torchrun", "--nnodes=2", "--node_rank=1", "--nproc_per_node=4", "--master_addr=10.0.0.2",
        "--master_port=29500", "--rdzv_id=train-1", "--redirects=3", "--log_dir", "$GCONSOLE_JOB_DIR/ranks",
        "train.py", "--lr", "1",
    )  # fmt: skip
    assert second.env["NCCL_SOCKET_IFNAME"] == "eth0"
    assert second.env["CUDA_VISIBLE_DEVICES"] == ",".join(f"GPU-node002-{index}" for index in range(4))
    assert found.left_out == (("node003", "not needed"),)


def test_plan_of_one_rank_is_in_the_singular():
    text = plan_text(planned(JobRequest(TRAIN, nodes=1, gpus_per_node=1), [a_node(1)]))
    assert "job train-1: 1 node × 1 = 1 rank, 1 GPU per node" in text
    assert "\n  node001  rank 0  gpu 0\n" in text


def test_preflight_is_requested_before_nodes_are_planned():
    nodes = [a_node(1), a_node(2)]
    assert planned(JobRequest(TRAIN, nodes=2), nodes, ready={}) == PreflightNeeded(("node001", "node002"))


def test_node_that_fails_preflight_is_replaced_by_an_unchecked_node():
    nodes = [a_node(1), a_node(2), a_node(3)]
    ready = {"node001": an_answer(1, problems=("the folder /data is not there",)), "node002": an_answer(2)}
    assert planned(JobRequest(TRAIN, nodes=2), nodes, ready) == PreflightNeeded(("node003",))


def test_lost_or_too_small_gpus_are_not_assigned():
    mixed = a_node(1, gpus=0)
    gpus = (a_gpu("node001", 0, "lost: it fell off the bus"), a_gpu("node001", 1, mem_gib=16), a_gpu("node001", 2),
            a_gpu("node001", 3))  # fmt: skip
    node = type(mixed)(**{**{f: getattr(mixed, f) for f in mixed.__slots__}, "gpus": gpus})
    found = planned(JobRequest(TRAIN, gpus_per_node=2, min_gpu_mem_bytes=40 * GIB), [node])
    assert found.gpu_indices == {"node001": (2, 3)}


def test_refusal_gives_a_reason_per_node_and_an_alternative():
    nodes = [a_node(1, taken=6), a_node(2, taken=6), a_node(3, why_not="lost: no word for 4.0 s"),
             a_node(4, errors=("node004:gpu1 XID 79",))]  # fmt: skip
    found = planned(JobRequest(TRAIN, nodes=2, gpus_per_node=8), nodes)
    assert isinstance(found, Refusal)
    text = refusal_text(found)
    assert "node[001-002]: 2 of 8 GPUs free, 8 needed (gpu0: in use by pid 7 (python))" in text
    assert "node003: lost: no word for 4.0 s" in text
    assert "node004: node004:gpu1 XID 79" in text
    assert "try: --gpus-per-node 2: 2 nodes available" in text


def test_change_suggested_by_a_refusal_can_be_planned():
    nodes = [a_node(number, taken=number % 5) for number in range(1, 20)]
    refused = planned(JobRequest(TRAIN, nodes=10, gpus_per_node=8, min_gpu_mem_bytes=10 * GIB), nodes)
    assert any(change.startswith("--gpus-per-node 6:") for change in refused.change), refused.change
    assert isinstance(planned(JobRequest(TRAIN, nodes=10, gpus_per_node=6), nodes), LaunchPlan)


def test_cluster_without_gpus_runs_cpu_jobs():
    found = planned(JobRequest(TRAIN, nodes=2, procs_per_node=3), [a_node(1, gpus=0), a_node(2, gpus=0)])
    assert (found.first.gpus_per_node, found.first.world_size) == (0, 6)
    assert "CUDA_VISIBLE_DEVICES" not in found.first.env


def test_cpu_job_gets_no_visible_gpus_on_a_gpu_node():
    found = planned(JobRequest(TRAIN, gpus_per_node=0), [a_node(1, taken=8)])
    assert found.first.env["CUDA_VISIBLE_DEVICES"] == ""


def test_selected_nodes_are_all_used_or_the_request_is_refused():
    nodes = [a_node(1), a_node(2), a_node(3, taken=1)]
    assert len(planned(JobRequest(TRAIN, select=("node001", "node002")), nodes).orders) == 2
    assert isinstance(planned(JobRequest(TRAIN, select=("node001", "node003")), nodes), Refusal)
    assert planned(JobRequest(TRAIN, select=("node009",)), nodes).reason == "not a node of this cluster: node009"


def test_nodes_of_the_commonest_version_come_first_and_mixtures_are_warned_about():
    nodes = [a_node(1, versions=("535", "12.2", "x86_64")), a_node(2), a_node(3)]
    assert list(planned(JobRequest(TRAIN, nodes=2), nodes).orders) == ["node002", "node003"]
    assert "differ in driver" in planned(JobRequest(TRAIN, nodes=3), nodes).warnings[0]


def test_nodes_with_a_job_a_warning_or_work_come_last():
    nodes = [a_node(1, jobs=1), a_node(2, warnings=("eth0 is down",)), a_node(3, cpu_pct=99.0), a_node(4)]
    for wanted, last in ((1, "node004"), (2, "node003"), (3, "node002"), (4, "node001")):
        assert last in planned(JobRequest(TRAIN, nodes=wanted), nodes).orders


def test_user_environment_overrides_defaults_but_not_the_job_marker():
    request = JobRequest(TRAIN, nodes=2, env=(("NCCL_SOCKET_IFNAME", "ib0"), ("PYTHONUNBUFFERED", "0")))
    env = planned(request, [a_node(1, environment=(("TEAM", "llm"),)), a_node(2)]).first.env
    assert (env["NCCL_SOCKET_IFNAME"], env["PYTHONUNBUFFERED"], env["TEAM"]) == ("ib0", "0", "llm")
    assert (env["GCONSOLE_JOB"], env["GCONSOLE_NODE_RANK"]) == ("train-1", "0")


def test_occupied_port_is_reported_with_its_node():
    found = planned(JobRequest(TRAIN, port=4000), [a_node(1)], {"node001": an_answer(1, port=None)})
    assert found.reason == "port 4000 is in use on node001"


def test_the_printed_command_can_be_pasted_into_a_shell():
    request = JobRequest(("train.py", "--name", "a b; rm -rf $HOME"), gpus_per_node=0)
    text = plan_text(planned(request, [a_node(1)]))
    assert "'a b; rm -rf $HOME'" in text
    assert '--log_dir "$GCONSOLE_JOB_DIR"/ranks' in text


def test_command_the_launcher_cannot_start_is_refused_with_a_hint():
    found = planned(JobRequest(("python3", "-c", "print(1)")), [a_node(1)])
    assert "give a script or -m MODULE" in found.reason


def test_job_id_starts_with_the_script_name_and_is_unique():
    assert new_job(("python", "fine-tune.py")).startswith("fine-tune-")
    assert new_job(("python", "a.py")) != new_job(("python", "a.py"))


class TestUnhealthyNodes:
    """Findings of a node or GPU exclude it from the plan or are listed in it."""

    def planned(self, *records: Record) -> LaunchPlan | Refusal:
        store = Store()
        for number in (1, 2):
            name = f"node{number:03}"
            store.apply([
                NodeState(node=name, state="ok"), AgentCost(node=name, sample_interval_ms=1000),
                Host(node=name, cpu_pct=3.0, mem_available_bytes=900 << 30),
                *(GpuInfo(node=name, index=index, uuid=f"{name}-{index}", mem_total_bytes=80 << 30, driver="570.1")
                  for index in range(2)),
            ])  # fmt: skip
        store.apply(list(records))
        nodes = list(node_facts(store))
        found = plan(JobRequest(("train.py",), gpus_per_node=2), "t-1", nodes, answers(nodes), 1)
        assert isinstance(found, LaunchPlan | Refusal)
        return found

    def a_finding(self, id: str, culprit: str, severity: str) -> Finding:
        return Finding(id=id, severity=severity, confidence="certain", culprits=(culprit,), text=f"told of {culprit}",  # type: ignore[arg-type]
                       first_seen=1)  # fmt: skip

    def test_gpu_with_an_xid_that_needs_a_reset_is_not_assigned(self):
        found = self.planned(self.a_finding("gpu_xid", "node001:gpu1", "error"))
        assert isinstance(found, LaunchPlan)
        assert list(found.orders) == ["node002"]
        assert found.left_out == (("node001", "1 of 2 GPUs free, 2 needed (gpu1: gpu_xid: told of node001:gpu1)"),)

    def test_a_node_with_a_bad_link_is_left_out(self):
        found = self.planned(self.a_finding("nic_down", "node001:mlx5_0", "error"))
        assert isinstance(found, LaunchPlan)
        assert list(found.orders) == ["node002"]
        assert found.left_out == (("node001", "told of node001:mlx5_0"),)

    def test_node_with_a_throttled_gpu_is_used_last_and_reported(self):
        found = self.planned(self.a_finding("gpu_throttle", "node001:gpu0", "warning"))
        assert isinstance(found, LaunchPlan)
        assert list(found.orders) == ["node002"]
        assert found.left_out == (("node001", "not needed; gpu0: told of node001:gpu0"),)

    def test_node_with_an_unsynchronised_clock_is_used_last_and_reported(self):
        found = self.planned(ClockSource(node="node001", daemon="chrony", synced=False))
        assert isinstance(found, LaunchPlan)
        assert found.left_out == (("node001", "not needed; clock not synchronised (chrony)"),)
        far = self.planned(*(ClockSource(node=f"node00{n}", daemon="chrony", synced=True, offset_ns=812_000_000)
                             for n in (1, 2)))  # fmt: skip
        assert isinstance(far, LaunchPlan)
        assert far.warnings == ("node001: clock +812 ms off, according to chrony",)

    def test_unknown_clock_state_causes_no_warning(self):
        found = self.planned(ClockSource(node="node001", daemon=None, synced=None))
        assert isinstance(found, LaunchPlan)
        assert (list(found.orders), found.warnings) == (["node001"], ())


def test_different_torch_versions_of_the_nodes_are_a_warning():
    nodes = [a_node(1), a_node(2)]
    ready = {
        f"node00{number}": an_answer(number, python=PythonFacts("/venv/bin/python", "3.11.2", {"torch": torch}))
        for number, torch in ((1, "2.3.0"), (2, "2.4.0"))
    }
    outcome = planned(JobRequest(TRAIN, nodes=2), nodes, ready)
    assert outcome.warnings[-1] == "the nodes differ in torch: 2.3.0 on node001 · 2.4.0 on node002"
    assert "  Python 3.11.2, torch 2.3.0" in plan_text(outcome)


def test_what_is_copied_first_is_not_checked_on_the_nodes():
    folder = SyncFolder("/code", (SyncFile("train.py", 1, "0", 0o644),))
    check = python_check(JobRequest(("./train.py",), sync=folder))
    assert (check.script, check.launcher, check.needs) == (None, "torchrun", ("torch",))
    assert python_check(JobRequest(("train.py",))).script == "train.py"
    assert python_check(JobRequest(("/opt/bin/program",), launcher="env")) is None
