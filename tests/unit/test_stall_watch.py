"""When a job that stands still is diagnosed automatically, how often, and what is reported."""

import itertools

import msgspec
import pytest

from gconsole.analysis.stalls import Suspicion
from gconsole.config.sections import WatchConfig
from gconsole.core.store import Store
from gconsole.monitor.slow_jobs import captures_needed
from gconsole.monitor.stall_watch import AGAIN_S, LONGEST_S, StallWatch
from gconsole.records import Place, Rank, RankStat, Stack, StackFrame

SECOND = 1_000_000_000
C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = "/home/user/job/train.py"


class WatchedJob:
    """Two ranks of one job, their figures once a second, and the console's clock."""

    def __init__(self, stall_s=30.0):
        self.store, self.at_s = Store(), 1_000
        self.watch = StallWatch(self.store, WatchConfig(stall_s=stall_s), lambda: self.at_s)
        self.store.apply([Rank(**self.head(rank), world_size=2, source="environ") for rank in (0, 1)])

    def head(self, rank, **more):
        at = self.at_s * SECOND
        return {
            "node": "node1", "agent": "a", "seq": 1, "t": at, "mono": at, "rx": at, "job": "llama", "rank": rank,
            "pid": 100 + rank, "start_ticks": 7, **more,
        }  # fmt: skip

    def run(self, seconds, *, switches=(0.0, 0.0), state="S"):
        """Let time pass with these context switches of the ranks per second; the jobs that were due meanwhile."""
        due = []
        for _ in range(seconds):
            self.at_s += 1
            self.store.apply([
                RankStat(**self.head(rank), state="moving", proc_state=state, cpu_pct=80.0, ctx_switches_s=count)
                for rank, count in enumerate(switches)
            ])  # fmt: skip
            suspected = self.watch.due()
            if suspected:
                due.append((self.at_s, suspected))
                self.watch.diagnosed(suspected)
        return due

    def capture(self, *, still, written_bytes=0):
        """What a diagnosis would capture: rank 0 in a collective, rank 1 in its own code, or both in turn."""
        paths = [((TRAIN, "step", 9), (C10D, "all_reduce", 3000)), ((TRAIN, "load_data", 4),)]
        stacks = []
        for sample in range(20):
            for rank in (0, 1):
                frames = paths[rank if still else (rank + sample) % 2]
                at = (self.at_s - 10) * SECOND + sample * SECOND // 2
                stacks.append(
                    Stack(
                        **self.head(rank, t=at), capture="c1", sample=sample, status="ok", looked=at, proc_state="S",
                        syscall=("futex", "clock_nanosleep")[rank], ctx_switches=0 if still else sample * 9,
                        thread_name="MainThread", written_bytes=sample * written_bytes * rank,
                        frames=tuple(StackFrame(function, file, line) for file, function, line in frames),
                    )
                )  # fmt: skip
        self.store.apply(stacks)


def test_a_job_is_due_once_it_has_slept_for_the_limit_although_other_threads_use_the_processor():
    job = WatchedJob()
    [(at_s, [suspicion])] = job.run(40)
    assert (at_s, suspicion.ranks) == (1_031, (0, 1))


def test_job_that_hung_before_the_console_came_is_due_at_once():
    job = WatchedJob()
    for rank in (0, 1):
        job.store.apply([
            RankStat(**job.head(rank), state="unknown", proc_state="S", ctx_switches_s=None, slept_s=600.0)
        ])  # fmt: skip
    [suspicion] = job.watch.due()
    assert (suspicion.ranks, suspicion.since_s) == ((0, 1), 600.0)
    assert job.watch.due() == (), "the next evaluation is a second later"
    assert job.watch.due(at_once=True) == (), "its diagnosis has begun"


def test_job_that_slept_when_the_console_came_and_wakes_up_is_not_due():
    job = WatchedJob()
    job.store.apply([RankStat(**job.head(0), state="unknown", proc_state="S", ctx_switches_s=None, slept_s=600.0)])
    assert job.run(10, switches=(7.0, 7.0)) == []


def test_stacks_that_are_not_read_in_time_are_reported_the_second_time():
    job = WatchedJob()
    job.run(1)
    suspicion = Suspicion(("llama", 0), 40.0, (0, 1), "the main thread of ranks 0-1 has not run for 40 s")
    reported = []
    for number in range(2):
        head = [job.head(rank) for rank in (0, 1)]
        job.store.apply([
            Stack(**each, capture=f"c{number}", sample=0, status="timed_out", looked=each["t"], proc_state="S")
            for each in head
        ])  # fmt: skip
        reported.append([draft.id for draft in job.watch.diagnosed([suspicion])])
    assert reported == [[], ["job_stalled"]]


@pytest.mark.parametrize(("switches", "state"), [((9.0, 9.0), "S"), ((0.0, 0.0), "R")], ids=["woken", "computing"])
def test_a_job_whose_main_threads_run_is_never_due(switches, state):
    assert WatchedJob().run(120, switches=switches, state=state) == []


def test_one_rank_that_sleeps_while_the_others_run_is_enough():
    assert len(WatchedJob().run(40, switches=(0.0, 50.0))) == 1


def test_nothing_is_due_where_it_is_off():
    assert WatchedJob(stall_s=0.0).run(120) == []


def test_a_limit_that_was_changed_meanwhile_holds_at_once():
    job = WatchedJob(stall_s=0.0)
    job.run(20)
    job.watch.follow(WatchConfig(stall_s=10.0))
    assert len(job.run(1)) == 1


def test_a_job_that_turns_out_to_progress_is_diagnosed_ever_more_rarely():
    job = WatchedJob()
    job.run(30)
    job.capture(still=False)
    times = [at_s for at_s, _ in job.run(300)]
    assert [after - before for before, after in itertools.pairwise(times)] == [
        AGAIN_S,
        2 * AGAIN_S,
        4 * AGAIN_S,
    ]


def test_verdict_is_that_of_the_time_of_its_capture():
    """A job was captured in one place before its longest pause was known; later its agent is replaced."""
    job = WatchedJob()
    job.store.ranks[("node1", 100, 7)].longest_pause_s = 60.0
    job.run(29)
    job.capture(still=True)
    job.at_s += 2
    job.run(1)
    assert job.watch.diagnosed(()) == [], "it has recovered from longer pauses"
    job.store.ranks[("node1", 100, 7)].longest_pause_s = 0.0
    job.store.apply([Rank(**job.head(rank), world_size=2, source="environ") for rank in (0, 1)])
    assert job.watch.diagnosed(()) == []


def test_stacks_of_long_ago_are_no_evidence_of_the_present():
    job = WatchedJob()
    job.capture(still=True)
    job.at_s += 600
    job.run(40)
    assert not [draft for draft in job.watch.diagnosed(()) if draft.severity == "error"]


def test_job_of_which_no_new_stack_can_be_read_is_a_warning_the_second_time():
    job = WatchedJob()
    job.run(29)
    job.capture(still=False)
    suspicion = Suspicion(("llama", 0), 40.0, (0, 1), "the main thread of ranks 0-1 has not run for 40 s")
    reported = [[draft.id for draft in job.watch.diagnosed([suspicion])] for _ in range(3)]
    assert reported == [[], [], ["job_stalled"]]


def test_a_hung_job_is_reported_and_not_diagnosed_again_while_it_hangs():
    job = WatchedJob()
    job.run(29)
    job.capture(still=True)
    job.at_s += 2
    job.run(1)
    [finding] = job.watch.diagnosed(())
    assert (finding.id, finding.severity, finding.culprits) == ("rank_missing", "error", ("rank 1",))
    assert job.run(int(LONGEST_S) - 2) == []


def test_a_hung_job_that_progresses_again_is_diagnosed_again_so_that_its_finding_clears():
    job = WatchedJob()
    job.run(29)
    job.capture(still=True)
    job.run(2)
    [(_, [again])] = job.run(3, switches=(9.0, 9.0))
    assert (again.job, again.text) == (("llama", 0), "it makes progress again")


def test_a_diagnosis_that_fails_is_not_repeated_at_once():
    job = WatchedJob()
    job.run(30)
    job.at_s += 1
    job.store.apply([RankStat(**job.head(0), state="idle", proc_state="S", ctx_switches_s=0.0)])
    assert len(job.watch.due()) == 1, "and nothing reports its result"
    times = []
    for _ in range(40):
        job.at_s += 1
        times += [job.at_s] * len(job.watch.due())
    assert len(times) == 1


def test_a_job_that_is_only_slow_is_diagnosed_again_soon():
    job = WatchedJob()
    job.run(29)
    job.capture(still=True, written_bytes=10_000)
    [(first, _), (second, _)] = job.run(40)
    assert second - first == AGAIN_S
    assert job.watch.diagnosed(()) == [], "it is healthy"


def test_a_hung_job_that_was_killed_stays_reported():
    job = WatchedJob()
    job.run(29)
    job.capture(still=True)
    job.run(2)
    job.store.apply([Rank(**job.head(rank), world_size=2, source="environ", status="exited") for rank in (0, 1)])
    job.at_s += 5
    assert job.watch.due() == ()


def test_a_job_whose_stacks_cannot_be_read_is_a_warning_without_a_culprit():
    job = WatchedJob()
    job.run(30)
    job.at_s += 1
    job.store.apply([RankStat(**job.head(0), state="idle", proc_state="S", ctx_switches_s=0.0)])
    suspected = job.watch.due()
    [finding] = job.watch.diagnosed(suspected)
    assert (finding.id, finding.severity, finding.culprits) == ("job_stalled", "warning", ())


class SpinningJob(WatchedJob):
    """Two ranks that never sleep, with a light stack sample each every `every_s`; both are in the calls `inner`."""

    inner: tuple[StackFrame, ...] = ()

    def spin(self, seconds, *, moved_bytes=(0, 0), paths=("poll", "poll"), every_s=10, frames=()):
        due = []
        for _ in range(seconds):
            due += self.run(1, switches=(3.0, 3.0), state="R")
            if self.at_s % every_s == 0:
                self.store.apply([self.place(rank, paths[rank], moved_bytes[rank], frames) for rank in (0, 1)])
        return due

    def place(self, rank, path, moved_bytes, frames):
        at = self.at_s * SECOND
        before = self.store.ranks[("node1", 100 + rank, 7)].place
        path = path if isinstance(path, str) else path(self.at_s)
        same = before is not None and any(frame.function == path for frame in before.frames)
        stack = (StackFrame("main", TRAIN, 3), *frames, StackFrame(path, TRAIN, 9), *self.inner)
        return Place(
            **self.head(rank), frames=stack, since=at,
            path_since=before.path_since if same else at, sampled=at, samples=before.samples + 1 if same else 1,
            moved_bytes=moved_bytes,
        )  # fmt: skip


def test_job_that_spins_without_moving_data_is_due_after_the_limit():
    job = SpinningJob()
    [(at_s, [suspicion]), *_] = job.spin(80)
    assert 1_040 <= at_s <= 1_052
    assert suspicion.since_s >= 30.0
    assert suspicion.since_s <= at_s - 1_010, "no longer than it was sampled there"


def test_job_that_exchanges_data_or_changes_its_places_is_not():
    assert SpinningJob().spin(200, moved_bytes=(900_000, 900_000)) == []
    assert SpinningJob().spin(200, paths=("poll", lambda at_s: f"phase{at_s % 3}")) == []


def test_job_whose_data_connections_are_silent_between_two_exchanges_is_not():
    job = SpinningJob()
    for _ in range(10):
        assert job.spin(20) == []
        assert job.spin(10, moved_bytes=(10_000_000, 10_000_000)) == []


def test_old_samples_of_places_say_nothing():
    job = SpinningJob()
    job.spin(29)
    assert job.run(70, switches=(3.0, 3.0), state="R") == []


def test_rank_that_starts_may_take_longer():
    starts = (StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1027),)
    assert SpinningJob().spin(300, frames=starts) == []


def capture_of_spinning(job, functions, *, written_bytes=0):
    """What a diagnosis would capture: both ranks run in these functions."""
    stacks = []
    for sample in range(8):
        for rank in (0, 1):
            at = (job.at_s - 4) * SECOND + sample * SECOND // 2
            frames = (StackFrame("main", TRAIN, 3), StackFrame(functions[rank], TRAIN, 9 + sample % 2))
            stacks.append(
                Stack(
                    **job.head(rank, t=at), capture="c2", sample=sample, status="ok", looked=at, proc_state="R",
                    thread_name="MainThread", frames=frames, written_bytes=sample * written_bytes,
                )
            )  # fmt: skip
    job.store.apply(stacks)


def suspected_spinning_job():
    job = SpinningJob()
    [(_, [suspicion]), *_] = job.spin(42)
    return job, suspicion


def test_job_whose_ranks_all_spin_is_a_warning_without_a_culprit_that_names_their_places():
    job, suspicion = suspected_spinning_job()
    capture_of_spinning(job, ("poll", "poll"))
    [finding] = job.watch.diagnosed([suspicion])
    assert (finding.id, finding.severity, finding.confidence, finding.culprits) == (
        "job_stalled", "warning", "possible", (),
    )  # fmt: skip
    assert "ranks 0-1 at train.py:9 poll" in finding.text


def test_suspicion_that_the_capture_does_not_confirm_is_not_a_finding():
    job, suspicion = suspected_spinning_job()
    capture_of_spinning(job, ("poll", "backward"))
    assert [draft.id for draft in job.watch.diagnosed([suspicion])] == []
    job, suspicion = suspected_spinning_job()
    capture_of_spinning(job, ("poll", "poll"), written_bytes=10_000)
    assert [draft.id for draft in job.watch.diagnosed([suspicion])] == []


def test_job_that_moved_data_meanwhile_is_not_a_finding():
    job, suspicion = suspected_spinning_job()
    job.spin(10, moved_bytes=(50_000, 50_000))
    capture_of_spinning(job, ("poll", "poll"))
    assert [draft.id for draft in job.watch.diagnosed([suspicion])] == []


def test_small_messages_are_no_silence_where_a_job_sends_nothing_else():
    job = SpinningJob()
    for _ in range(10):
        assert job.spin(20) == []
        assert job.spin(10, moved_bytes=(400, 400)) == []
    job.spin(10, moved_bytes=(900_000, 900_000))
    assert job.spin(80, moved_bytes=(192, 192)) != [], "but keepalives are, where it sent more"


@pytest.mark.parametrize(("slept_s", "ids"), [(31.0, []), (599.0, []), (620.0, ["external"])])
def test_set_up_in_which_all_ranks_wait_is_a_finding_after_ten_minutes_also_without_light_samples(slept_s, ids):
    job = WatchedJob()
    job.run(29)
    job.store.apply([
        Stack(
            **job.head(rank, t=at), capture="c1", sample=sample, status="ok", looked=at, proc_state="S",
            syscall="futex", ctx_switches=0, thread_name="MainThread", thread_slept_s=slept_s,
            frames=(StackFrame("main", TRAIN, 3), StackFrame("init_process_group", C10D, 900)),
        )
        for sample in range(20) for rank in (0, 1)
        for at in [(job.at_s - 10) * SECOND + sample * SECOND // 2]
    ])  # fmt: skip
    assert [draft.id for draft in job.watch.diagnosed([Suspicion(("llama", 0), 31.0, (0, 1), "")])] == ids


def test_longer_silences_that_ended_raise_the_limit():
    job = SpinningJob()
    job.spin(42)
    job.spin(50)
    job.spin(10, moved_bytes=(50_000, 50_000))
    assert job.spin(60, paths=("poll", "poll")) == []


ALL_REDUCE = StackFrame("all_reduce", C10D, 3000)
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


class TrainingJob(SpinningJob):
    """Two ranks that train, exchanging data; the late one is never seen in a collective, but in `late_in`."""

    late_in: tuple[StackFrame, ...] = ()

    def train(self, seconds, *, late=1):
        due = []
        for _ in range(seconds):
            due += self.run(1, switches=(30.0, 30.0), state="R")
            if self.at_s % 10 == 0:
                for rank in (0, 1):
                    inner = self.late_in if rank == late else (ALL_REDUCE,)
                    place = self.place(rank, "forward", 50_000, ())
                    self.store.apply([msgspec.structs.replace(place, frames=(*place.frames, *inner))])
        return due

    def capture_training(self, late):
        """What a diagnosis would capture: in every sample, all but the late rank are in a collective."""
        stacks = []
        for sample in range(12):
            for rank in (0, 1):
                at = (self.at_s - 6) * SECOND + sample * SECOND // 2
                inner = self.late_in if rank == late else (ALL_REDUCE,)
                stacks.append(
                    Stack(
                        **self.head(rank, t=at), capture=f"c{self.at_s}", sample=sample, status="ok", looked=at,
                        proc_state="R", ctx_switches=sample * 30, thread_name="MainThread",
                        frames=(StackFrame("main", TRAIN, 3), StackFrame("forward", TRAIN, 9 + sample % 2), *inner),
                    )
                )  # fmt: skip
        self.store.apply(stacks)


def test_job_whose_ranks_lastingly_wait_for_one_is_diagnosed_and_reported_once():
    job = TrainingJob()
    assert job.train(110) == []
    job.capture_training(late=1)
    [(_, [suspicion])] = job.train(20)
    assert suspicion.late == 1
    [finding] = job.watch.diagnosed([suspicion])
    assert (finding.id, finding.severity, finding.culprits) == ("straggler", "warning", ("rank 1",))
    assert finding.confidence in ("likely", "possible")
    assert "they wait for it in 100% of the time (95 %: " in finding.text, "how often, with error bars"
    assert job.train(int(LONGEST_S) - 60) == []


def test_straggler_that_only_a_capture_shows_is_not_reported():
    job = TrainingJob()
    job.train(30)
    job.capture_training(late=1)
    assert job.watch.diagnosed([Suspicion(("llama", 0), 30.0, (0,), "asleep")]) == []


def test_rank_that_waits_for_its_data_loader_is_not_named():
    job = TrainingJob()
    job.late_in = (StackFrame("_MultiProcessingDataLoaderIter._next_data", LOADER, 1500),)
    job.train(110)
    job.capture_training(late=1)
    [(_, [suspicion])] = job.train(20)
    [finding] = job.watch.diagnosed([suspicion])
    assert (finding.id, finding.severity, finding.culprits) == ("slow", "warning", ())
    assert "steps wait for data loading, at present that of rank 1" in finding.text


def test_late_rank_that_the_capture_does_not_show_is_not_reported():
    job = TrainingJob()
    job.train(110)
    job.capture_training(late=0)
    [(_, [suspicion])] = job.train(20)
    assert job.watch.diagnosed([suspicion]) == []
    assert job.watch.diagnosed([]) == [], "also not after the diagnosis of another job"


class LongSteps(TrainingJob):
    """Steps of ten seconds, longer than a capture: each shows rank 0 in one wait, or both computing."""

    def diagnose(self, late=1, switches=None):
        """The findings after a diagnosis that captures while all others wait for `late`; None: while all compute."""
        stacks, switches = [], switches or self.at_s * 30
        for sample in range(3):
            for rank in (0, 1):
                at = (self.at_s - 1) * SECOND + sample * SECOND // 8
                waits = late is not None and rank != late
                inner = (ALL_REDUCE,) if waits else ()
                stacks.append(
                    Stack(
                        **self.head(rank, t=at), capture=f"c{self.at_s}", sample=sample, status="ok", looked=at,
                        proc_state="S" if waits else "R", ctx_switches=switches + (0 if waits else sample),
                        thread_name="MainThread",
                        frames=(StackFrame("main", TRAIN, 3), StackFrame("forward", TRAIN, 9), *inner),
                    )
                )  # fmt: skip
        self.store.apply(stacks)
        return self.watch.diagnosed(self.suspected)

    def until_late(self):
        """Train until the rank is suspected; the suspicions."""
        [(_, self.suspected)] = self.train(130)
        return self.suspected

    def train(self, seconds, *, late=1):
        due = super().train(seconds, late=late)
        if due:
            self.suspected = due[-1][1]
        return due


def test_straggler_in_steps_longer_than_a_capture_is_named_after_captures_of_several_steps():
    job = LongSteps()
    [suspicion] = job.until_late()
    assert suspicion.late == 1
    for _ in range(7):  # one of two ranks is the last in so many steps by chance once in 128 times
        assert job.diagnose(1) == []
        job.train(35)
    [finding] = job.diagnose(1)
    assert (finding.id, finding.severity, finding.culprits) == ("straggler", "warning", ("rank 1",))
    assert "in 8 captures of different steps, all others waited while it worked" in finding.text
    assert "they wait for it in 100% of the time (95 %: " in finding.text


def test_captures_of_one_long_wait_count_once():
    job = LongSteps()
    job.until_late()
    for _ in range(12):  # more than would name it
        assert job.diagnose(1, switches=30_000) == []
        job.at_s += 2


def test_captures_in_which_ranks_wait_for_each_other_in_turn_name_none():
    job = LongSteps()
    job.until_late()
    for late in (1, 1, 0) * 6:  # rank 1 alone twelve times, more than would name it
        assert job.diagnose(late) == []
        job.train(35)


@pytest.mark.parametrize("ranks", [0, 1, 2])
def test_captures_needed_are_those_of_two_ranks_where_a_capture_shows_fewer(ranks):
    assert captures_needed(ranks) == 8


def test_fewer_captures_are_needed_of_more_ranks():
    assert [captures_needed(ranks) for ranks in (3, 4, 6, 8, 1024)] == [5, 4, 3, 3, 3]


@pytest.mark.parametrize(
    "inner",
    [
        StackFrame("evaluate", TRAIN, 5),
        StackFrame("save", "/venv/lib/python3.11/site-packages/torch/serialization.py", 940),
    ],
    ids=["evaluates", "saves"],
)
def test_job_that_evaluates_or_saves_is_not_slow(inner):
    job = TrainingJob()
    job.inner = (inner,)
    assert job.train(300) == []


def test_late_rank_that_recovers_is_diagnosed_again_so_that_its_finding_clears():
    job = TrainingJob()
    job.train(110)
    job.capture_training(late=1)
    job.train(20)
    job.watch.diagnosed([Suspicion(("llama", 0), 50.0, (), "", late=1)])
    [(_, [again])] = job.train(400, late=None)
    assert again.text == "it makes progress again"


SETS_UP = (StackFrame("new_group", C10D, 5_000),)


def test_set_up_of_a_group_in_mid_training_may_not_take_longer_than_a_step():
    job = TrainingJob()
    job.train(40, late=None)
    job.inner = SETS_UP
    [(_, [suspicion]), *_] = job.spin(80, paths=("set_up", "set_up"))
    assert suspicion.since_s >= 30.0


def test_ranks_that_are_seen_in_collectives_in_turn_have_trained_together():
    job = TrainingJob()
    for turn in range(4):
        job.train(10, late=turn % 2)
    job.inner = SETS_UP
    assert job.spin(80, paths=("set_up", "set_up")) != []


def test_exchange_of_all_ranks_at_once_is_one_sign_of_training():
    job = TrainingJob()
    job.train(20, late=None)
    job.inner = SETS_UP
    assert job.spin(300, paths=("set_up", "set_up")) == [], "the first values of the model may be exchanged"


def test_set_up_of_a_group_before_any_step_may():
    job = TrainingJob()
    job.inner = SETS_UP
    assert job.spin(300, paths=("set_up", "set_up")) == []


class StepCountingJob(WatchedJob):
    """Two ranks that make steps, read every 10 s."""

    step = 0.0

    def count(self, seconds, step_s):
        """Let time pass in which a step takes so long; the jobs that were due meanwhile."""
        due = []
        for _ in range(seconds):
            self.at_s, self.step = self.at_s + 1, self.step + 1 / step_s
            if self.at_s % 10 == 0:
                self.read_step = int(self.step)
            self.store.apply([
                RankStat(
                    **self.head(rank), state="moving", proc_state="R", cpu_pct=80.0, ctx_switches_s=9.0,
                    step=self.read_step, watched_at=self.at_s // 10 * 10 * SECOND,
                )
                for rank in (0, 1)
            ])  # fmt: skip
            suspected = self.watch.due()
            if suspected:
                due.append((self.at_s, suspected))
                self.watch.diagnosed(suspected)
        return due

    read_step = 0


def test_job_whose_steps_take_lastingly_longer_is_reported_without_a_name():
    job = StepCountingJob()
    assert job.count(600, 0.5) == []
    [(at_s, [suspicion])] = job.count(400, 2.0)
    assert 1_600 + 120 <= at_s <= 1_600 + 260
    [finding] = job.watch.diagnosed([suspicion])
    assert (finding.id, finding.severity, finding.culprits, finding.job) == ("slow", "warning", (), "llama")
    assert "each step takes 2.00 s, for 3 min now; before it took 500 ms" in finding.text


def test_slow_job_that_recovers_is_diagnosed_again_so_that_its_finding_clears():
    job = StepCountingJob()
    job.count(600, 0.5)
    job.count(400, 2.0)
    [(_, [again])] = job.count(400, 0.5)
    assert again.text == "it makes progress again"
    assert job.watch.diagnosed([again]) == []


def test_job_that_is_slow_from_its_beginning_or_for_a_minute_is_not_reported():
    job = StepCountingJob()
    assert job.count(900, 2.0) == []
    job = StepCountingJob()
    assert job.count(600, 0.5) + job.count(100, 2.0) + job.count(600, 0.5) == []
