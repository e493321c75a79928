"""Jobs without a watched step whose steps show in the traffic of a node or the power of a GPU: progress, pace, stops.

The records of each second arrive one by one, those of the ports in an order drawn by chance.
"""

import random
import re

import pytest

from gconsole.config.sections import WatchConfig
from gconsole.core.store import Store
from gconsole.monitor.progress import progress_in
from gconsole.monitor.rank_signs import signs_of
from gconsole.monitor.slow_jobs import SlowJobs
from gconsole.monitor.stall_watch import StallWatch
from gconsole.monitor.step_length import step_lengths
from gconsole.records import (
    Digest,
    Gpu,
    GpuDigest,
    GpuProcess,
    Nic,
    PgStatus,
    Place,
    Rank,
    RankStat,
    RankTraffic,
    StackFrame,
)
from gconsole.report.document import make_report

SECOND = 1_000_000_000
RUNS = 20
TRAIN = "/home/user/job/train.py"


class TrainingJob:
    """Four ranks on two nodes, without stack samples; each step sends 400 MB in its last third."""

    def __init__(self, seed=1, *, curve="nic", history_bytes=None):
        self.store, self.at_s = Store(history_bytes), 10_000
        self.chance, self.curve, self.silent = random.Random(seed), curve, ()
        self.watch = StallWatch(self.store, WatchConfig(stall_s=30.0), lambda: self.at_s)
        self.phase, self.numbers = self.chance.random(), (0, 1, 2, 3)
        self.store.apply([Rank(**self.head(n), world_size=4, source="environ") for n in self.numbers])
        if curve != "nic":
            self.store.apply([
                GpuProcess(**self.head(n), index=n % 2, uuid=f"GPU-{n}", type="compute", mem_used_bytes=1)
                for n in self.numbers
            ])  # fmt: skip

    def head(self, number, **more):
        node = f"node{number // 2 + 1}"
        return {**self.clock(node), "job": "llama", "rank": number, "pid": 100 + number, "start_ticks": 7, **more}

    def clock(self, node):
        at = self.at_s * SECOND
        return {"node": node, "agent": "a", "seq": 1, "t": at, "mono": at, "rx": at}

    def run(self, seconds, step_s=6.0, bytes_=4e8):
        """Let time pass with steps of this length, None: it stands still; the jobs that were due meanwhile."""
        due = []
        for _ in range(seconds):
            self.at_s += 1
            level = self.level(step_s)
            records = [
                RankStat(**self.head(number), state="moving", proc_state="R", cpu_pct=99.0, ctx_switches_s=40.0)
                for number in self.numbers
            ]
            records += self.figures(level, bytes_ / (step_s or 6.0) * 3)
            self.chance.shuffle(records)
            for record in records:
                self.store.apply([record])
            suspected = self.watch.due()
            if suspected:
                due.append((self.at_s, suspected))
                self.watch.diagnosed(suspected)
        return due

    def level(self, step_s):
        """Share of the last second in which the job sent data."""
        if step_s is None:
            return 0.0
        busy = 0
        for _ in range(20):
            self.phase = (self.phase + 0.05 / step_s * self.chance.uniform(0.9, 1.1)) % 1.0
            busy += self.phase > 2 / 3
        return busy / 20

    def figures(self, level, rate):
        if self.curve == "nic":
            return [
                Nic(
                    **self.clock(node), device=device, port=1, rdma=device == "mlx5_0",
                    rx_bytes_s=device_share * level * rate + self.chance.uniform(0, 9e4),
                    tx_bytes_s=device_share * level * rate,
                )
                for node in ("node1", "node2")
                for device, device_share in (("mlx5_0", float(node not in self.silent)), ("eth0", 0.0))
            ]  # fmt: skip
        if self.curve == "nvlink":
            return [
                Gpu(
                    **self.clock(f"node{n // 2 + 1}"), index=n % 2, uuid=f"GPU-{n}",
                    nvlink_rx_bytes_s=level * rate, nvlink_tx_bytes_s=level * rate,
                )
                for n in self.numbers
            ]  # fmt: skip
        power_w = 700 - 300 * level
        low, high = (400.0, 700.0) if self.curve == "power of short steps" else (power_w - 20, power_w + 20)
        return [
            record
            for n in self.numbers
            for record in (
                Gpu(**self.clock(f"node{n // 2 + 1}"), index=n % 2, uuid=f"GPU-{n}", power_w=power_w),
                GpuDigest(
                    **self.clock(f"node{n // 2 + 1}"), index=n % 2, uuid=f"GPU-{n}", samples=10,
                    power_w=Digest(low, power_w, high, power_w),
                ),
            )
        ]  # fmt: skip

    def states(self):
        return {
            (now.rank.node, entry.state, entry.source, entry.evidence)
            for key, entry in progress_in(self.store).items()
            if (now := self.store.ranks[key]).rank.job == "llama"
        }


def test_traffic_of_the_node_is_progress_of_its_ranks_and_says_so():
    job = TrainingJob()
    assert job.run(300) == []
    for node in ("node1", "node2"):
        (state, source, evidence), = {entry[1:] for entry in job.states() if entry[0] == node}  # fmt: skip
        assert (state, source) == ("progressing", "nic")
        assert evidence.startswith(f"the RDMA traffic of {node} is high every 6")


def test_recording_shows_the_steps_of_the_minutes_before_a_jump():
    job = TrainingJob(history_bytes=1 << 24)
    job.watch.follow(WatchConfig(stall_s=0.0))  # nobody watches
    job.run(300)
    assert {entry[1:3] for entry in job.states()} == {("progressing", "nic")}


def test_ranks_of_a_node_that_no_longer_sends_do_not_progress_by_another_node():
    job = TrainingJob()
    job.run(300)
    job.silent = ("node2",)
    due = job.run(120)
    states = {entry[0]: entry[1:3] for entry in job.states()}
    assert states == {"node1": ("progressing", "nic"), "node2": ("unknown", "nic")}
    assert due == [], "the job goes on"


@pytest.mark.parametrize("curve", ["nvlink", "power"])
def test_curve_of_a_gpu_is_progress_of_the_ranks_of_its_node(curve):
    job = TrainingJob(curve=curve)
    job.run(300)
    [entry] = [entry for entry in job.states() if entry[0] == "node1"]
    if curve == "nvlink":
        assert entry[1:3] == ("progressing", "gpu")
    else:
        assert "the power of node1:gpu0 is high every 6" in entry[3]


def test_power_that_changes_within_a_second_shows_no_steps():
    job = TrainingJob(curve="power of short steps")
    job.run(300)
    assert {entry[1:3] for entry in job.states()} == {("unknown", "none")}


@pytest.mark.parametrize("before_s", [0, 300], ids=["always", "later"])
def test_traffic_of_a_node_that_two_jobs_share_shows_nothing(before_s):
    job = TrainingJob()
    job.run(before_s)
    job.store.apply([Rank(**{**job.head(0), "pid": 900, "job": "other"}, world_size=1, source="environ")])
    job.run(300)
    states = {entry[0]: entry[1:3] for entry in job.states()}
    assert states == {"node1": ("unknown", "none"), "node2": ("progressing", "nic")}


@pytest.mark.parametrize("curve", ["nic", "nvlink"])
def test_job_whose_steps_take_three_times_as_long_is_slow_and_no_rank_is_named(curve):
    for seed in range(3):
        job = TrainingJob(seed, curve=curve)
        assert job.run(420) == []
        (at_s, [suspicion]), *_ = job.run(420, step_s=18.0)
        assert at_s <= 10_000 + 420 + 330
        [finding] = job.watch.diagnosed([suspicion])
        assert (finding.id, finding.severity, finding.culprits, finding.job) == ("slow", "warning", (), "llama")
        assert re.search(r"repeats every 1[78]\.\d s", finding.text)
        assert ", before every 6" in finding.text
        assert finding.evidence[0] in ("nic.rx_bytes_s", "gpu.nvlink_rx_bytes_s")


def test_job_that_stands_still_is_diagnosed_although_its_ranks_poll_and_no_stack_is_sampled():
    job = TrainingJob()
    job.run(420)
    (at_s, [suspicion]), *_ = job.run(120, step_s=None)
    assert 10_420 + 28 <= at_s <= 10_420 + 45
    assert suspicion.text.startswith("the RDMA traffic of node"), "of the last one that sent"
    assert ", high every 6" in suspicion.text
    assert not suspicion.is_slow
    assert {entry[1:3] for entry in job.states() if entry[0] == "node1"} == {("unknown", "nic")}


@pytest.mark.parametrize("seed", range(RUNS))
def test_healthy_job_is_never_suspected(seed):
    """Steps of two minutes of training, a pause, another phase of the training, and the first one again."""
    job = TrainingJob(seed)
    step_s = job.chance.choice((0.3, 0.8, 2.5, 4.5, 6.0, 9.0))
    due = job.run(300, step_s)
    due += job.run(20, None) + job.run(200, step_s)
    due += job.run(200, 2.5 * step_s, bytes_=1e8) + job.run(200, step_s)
    assert due == []


def flight(job, number, newest, capture):
    head = job.head(number, t=job.at_s * SECOND)
    return PgStatus(
        **head, capture=capture, source="worker_server", read_at=job.at_s * SECOND, process_group=("0", "default_pg"),
        last_enqueued_collective=newest, last_completed_collective=newest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gained", "state", "text"),
    [(7, "progressing", "7 collectives in 40 s, between two reads"), (0, "unknown", "no collective in 40 s")],
)
def test_sequence_numbers_of_two_reads_are_progress_or_its_absence(gained, state, text):
    job = TrainingJob(curve="power of short steps")
    job.run(10)
    job.store.apply([flight(job, number, 1_000, "c1") for number in job.numbers])
    job.run(40)
    job.store.apply([flight(job, number, 1_000 + gained, "c2") for number in job.numbers])
    assert {entry[1:3] for entry in job.states()} == {(state, "collectives")}
    assert all(entry[3].startswith(text) for entry in job.states())
    job.run(61)
    assert {entry[1:3] for entry in job.states()} == {("unknown", "none")}, "an old read is no evidence"


class LateRankJob(TrainingJob):
    """Light stack samples every 10 s: all ranks but rank 1 wait in an all_reduce."""

    def figures(self, level, rate):
        records = super().figures(level, rate)
        if self.at_s % 10 == 0:
            records += [self.place(number) for number in self.numbers]
        return records

    def place(self, number):
        distributed = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
        inner = StackFrame("forward", TRAIN, 9) if number == 1 else StackFrame("all_reduce", distributed, 2810)
        head = self.head(number)
        at, before = self.at_s * SECOND, self.store.ranks[(head["node"], head["pid"], 7)].place
        return Place(
            **head, frames=(StackFrame("main", TRAIN, 3), inner), since=at,
            path_since=at if before is None else before.path_since, sampled=at,
            samples=1 if before is None else before.samples + 1, moved_bytes=50_000_000,
        )  # fmt: skip


def test_job_whose_steps_showed_in_its_traffic_has_trained():
    job = TrainingJob()
    signs = signs_of(job.store)
    assert not signs.has_trained("llama", 0)
    job.run(420)
    assert signs.has_trained("llama", 0)


def test_cost_of_a_late_rank_without_a_watched_step_is_of_the_steps_that_the_traffic_shows():
    job = LateRankJob()
    suspected = [suspicion for _, suspicions in job.run(420) for suspicion in suspicions]
    assert {suspicion.late for suspicion in suspected} == {1}
    assert " ms of each step" not in suspected[0].measured, "before its step clock is known"
    assert "ms of each step (" in suspected[-1].measured
    assert suspected[-1].measured.endswith("by the RDMA traffic of node1")
    [waits] = SlowJobs(job.store).waits()
    assert waits.late.rank == 1
    assert waits.step.seconds == pytest.approx(6.0, rel=0.05)


class ShortSteps(TrainingJob):
    """Rank 0 sends its traffic in intervals of 50 ms once that was ordered; no port and no GPU shows anything."""

    def __init__(self, seed=1, **more):
        super().__init__(seed, **more)
        self.ordered, self.source = {}, "tcp"
        self.watch.step_clocks.measure_traffic = self.ordered_now
        self.scale = 1.0

    def ordered_now(self, ranks):
        self.ordered = dict(ranks)

    def level(self, step_s):
        self.bytes = []
        for _ in range(20):
            busy = 0
            for _ in range(10):
                if step_s is not None:
                    self.phase = (self.phase + 0.005 / step_s * self.chance.uniform(0.9, 1.1)) % 1.0
                    busy += self.phase > 2 / 3
            self.bytes.append(int(self.scale * (1e5 * busy + self.chance.uniform(0, 1e3))))
        return 0.0

    def figures(self, level, rate):
        return [
            RankTraffic(
                **self.head(n), source=self.source, every_ms=50, began=(self.at_s - 1) * SECOND,
                moved_bytes=tuple(self.bytes),
            )
            for n in self.numbers
            if (100 + n, 7) in self.ordered.get(f"node{n // 2 + 1}", ())
        ]  # fmt: skip


def test_short_steps_show_in_the_traffic_of_the_lowest_rank_after_two_minutes():
    job = ShortSteps()
    assert job.run(140, 0.4) == []
    assert job.ordered == {"node1": ((100, 7),)}
    length = step_lengths(job.store)["llama", 0]
    assert length.seconds == pytest.approx(0.4, rel=0.01)
    assert length.curve == "the traffic of rank 0"
    entries = job.states()
    assert {entry[1:3] for entry in entries if entry[0] == "node1"} == {("progressing", "traffic")}
    assert all(
        "is high every 4" in entry[3] or "is high every 39" in entry[3] for entry in entries if entry[2] == "traffic"
    )
    [line] = make_report(job.store).jobs
    assert line.step_s == pytest.approx(0.4, rel=0.01)
    assert line.step_source == "the traffic of rank 0"


def test_traffic_is_no_longer_ordered_of_a_job_whose_steps_are_watched_and_of_one_that_ended():
    job = ShortSteps()
    job.run(60, 0.4)
    assert job.ordered
    job.store.apply([
        RankStat(**job.head(0), state="moving", proc_state="R", cpu_pct=99.0, ctx_switches_s=40.0, step=7, watched_at=1)
    ])  # fmt: skip
    job.numbers = (1, 2, 3)  # whose records go on
    job.run(10, 0.4)
    assert job.ordered == {}


def test_job_whose_traffic_shows_no_steps_is_asked_again_only_after_a_while():
    job = ShortSteps()
    job.run(400, 0.02)
    assert job.ordered == {}
    job.run(1_450, 0.02)
    assert job.ordered, "tried again"


def test_steps_are_unknown_once_the_agent_sends_no_traffic_any_more():
    job = ShortSteps()
    job.run(140, 0.4)
    assert ("llama", 0) in step_lengths(job.store)
    job.watch.step_clocks.measure_traffic = lambda ranks: None
    job.ordered = {}  # as where the agent exceeds its budget
    job.run(20, 0.4)
    assert ("llama", 0) not in step_lengths(job.store)
    assert "traffic" not in {entry[2] for entry in job.states()}


def test_ports_of_a_node_that_two_jobs_share_show_the_short_steps_of_none():
    job = ShortSteps()
    job.source = "rdma"
    job.store.apply([Rank(**{**job.head(0), "pid": 900, "job": "other"}, world_size=1, source="environ")])
    job.run(140, 0.4)
    assert ("llama", 0) not in step_lengths(job.store)


def test_short_steps_that_take_three_times_as_long_are_slow_and_no_rank_is_named():
    job = ShortSteps()
    assert job.run(400, 0.4) == []
    job.scale = 1 / 3  # as many bytes a step
    (at_s, [suspicion]), *_ = job.run(420, 1.2)
    assert at_s <= 10_000 + 400 + 270
    [finding] = job.watch.diagnosed([suspicion])
    assert (finding.id, finding.severity, finding.culprits) == ("slow", "warning", ())
    assert "the traffic of rank 0 repeats every 1.2" in finding.text
    assert finding.evidence == ("rank_traffic.moved_bytes",)


def test_job_of_short_steps_that_stands_still_is_diagnosed():
    job = ShortSteps()
    assert job.run(200, 0.4) == []
    (at_s, [suspicion]), *_ = job.run(120, None)
    assert 10_200 + 28 <= at_s <= 10_200 + 45
    assert suspicion.text.startswith("the traffic of rank 0, high every ")


@pytest.mark.parametrize("seed", range(RUNS))
def test_healthy_job_of_short_steps_is_never_suspected(seed):
    """Training, a pause, a phase with other bytes, and the first one again; its agent is silent in between."""
    job = ShortSteps(seed)
    step_s = job.chance.choice((0.25, 0.4, 0.8, 1.5, 2.5))
    due = job.run(300, step_s)
    due += job.run(20, None) + job.run(100, step_s)
    job.at_s += 15
    due += job.run(100, step_s)
    job.scale = 0.2
    due += job.run(200, 2.5 * step_s)
    job.scale = 1.0
    due += job.run(200, step_s)
    assert due == []
