"""Verdicts from evidence that is not in outputs: exit codes, kernel messages, lost nodes, times, attempts."""

import msgspec
import pytest

from gconsole.analysis.crash.diagnosis import diagnose_crash
from gconsole.analysis.crash.findings import crash_finding
from gconsole.analysis.crash.verdict import (
    CrashEvidence,
    CrashVerdict,
    LauncherEnd,
    LauncherOutput,
    NodeFault,
    NodeLoss,
    RankEnd,
    RankOutput,
)
from gconsole.analysis.finding import IDS
from gconsole.present.crash import crash_lines, crash_text

SECOND = 1_000_000_000
NOW = 1_772_359_200 * SECOND


def raised(message: str, file: str = "/home/u/train.py", line: int = 12) -> str:
    return (
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 20, in <module>\n    main()\n'
        f'  File "{file}", line {line}, in step\n    work()\n{message}\n'
    )


CLOSED = raised("RuntimeError: [gloo/transport/tcp/pair.cc:1] Connection closed by peer [10.0.0.2]:1234")
OWN = raised("ValueError: bad label")
CUDA = raised("RuntimeError: CUDA error: unspecified launch failure")


def end(rank: int, text: str | None = CLOSED, *, at_s: float | None = None, bound_s: float = 0.0, **fields) -> RankEnd:
    outputs = (RankOutput("stderr", text, f"/logs/{rank}"),) if text is not None else ()
    lo = NOW + int((at_s - bound_s) * SECOND) if at_s is not None else None
    hi = NOW + int((at_s + bound_s) * SECOND) if at_s is not None else None
    fields = {"node": f"n{rank // 2}", "pid": 100 + rank, "exit_code": 1, **fields}
    return RankEnd(rank, outputs=outputs, ended_lo_ns=lo, ended_hi_ns=hi, **fields)


def verdict_of(*ends: RankEnd, **fields) -> CrashVerdict:
    verdict = diagnose_crash(CrashEvidence("job", 0, len(ends), ends, **fields))
    assert verdict is not None
    assert verdict.kind in IDS
    return verdict


def culprits(verdict: CrashVerdict) -> list[int | None]:
    return [culprit.rank for culprit in verdict.culprits]


def test_job_of_which_every_rank_ended_with_0_has_no_verdict() -> None:
    assert diagnose_crash(CrashEvidence("job", 0, 2, (end(0, "", exit_code=0), end(1, "", exit_code=0)))) is None


def test_running_job_without_failures_has_no_verdict() -> None:
    ends = tuple(end(rank, "step 1\n", exit_code=None, state="running") for rank in range(2))
    assert diagnose_crash(CrashEvidence("job", 0, 2, ends)) is None


def test_own_exception_precedes_the_consequences_on_other_ranks() -> None:
    verdict = verdict_of(end(0), end(1, OWN), end(2), end(3))
    assert (verdict.kind, culprits(verdict), verdict.confidence) == ("exception", [1], "likely")
    [group] = verdict.cascade
    assert (group.ranks, group.category, group.count) == ((0, 2, 3), "peer_closed", 3)
    assert verdict.victims == (0, 2, 3)


def test_first_of_two_exceptions_is_that_which_ended_first_beyond_the_bounds() -> None:
    other = raised("KeyError: 'x'")
    first = verdict_of(end(0, OWN, at_s=5.0, bound_s=0.1), end(1, other, at_s=6.0, bound_s=0.1))
    assert culprits(first) == [0]
    unresolved = verdict_of(end(0, OWN, at_s=5.0, bound_s=1.0), end(1, other, at_s=6.0, bound_s=1.0))
    assert (unresolved.first_cause, culprits(unresolved), unresolved.confidence) == (None, [0, 1], "possible")
    assert "does not show which was first" in unresolved.summary


def test_same_exception_on_all_ranks_blames_all_of_them() -> None:
    verdict = verdict_of(*(end(rank, OWN) for rank in range(4)))
    assert (verdict.kind, culprits(verdict)) == ("exception", [0, 1, 2, 3])
    assert verdict.summary.startswith("every rank (0-3)")


@pytest.mark.parametrize("fields", [{"pid": 103}, {"pid": 900}], ids=["rank", "child"])
def test_kernel_that_killed_a_rank_or_its_child_for_lack_of_memory_is_the_cause(fields: dict[str, int]) -> None:
    fault = NodeFault("n1", "oom_kill_in_cgroup", "Memory cgroup out of memory: Killed process", **fields)
    verdict = verdict_of(end(0), end(1), end(2), end(3, "", exit_code=-9, children=(900,)), faults=(fault,))
    assert (verdict.kind, culprits(verdict), verdict.confidence) == ("oom_killed", [3], "certain")


def test_kill_of_a_process_outside_of_the_job_is_not_its_cause() -> None:
    fault = NodeFault("n1", "oom_kill", "Out of memory: Killed process 7777 (stress)", pid=7777)
    assert verdict_of(end(0, OWN), end(1), faults=(fault,)).kind == "exception"


def test_sigkill_without_a_kernel_message_is_signalled_and_not_certain() -> None:
    verdict = verdict_of(end(0), end(1, "", exit_code=-9), end(2))
    assert (verdict.kind, culprits(verdict), verdict.confidence) == ("signalled", [1], "likely")


def test_ranks_that_the_launcher_killed_are_teardown() -> None:
    log = (
        "[W] Sending process 100 closing signal SIGTERM\n"
        "Unable to shutdown process 102 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n"
    )
    launcher = LauncherOutput(RankOutput("stderr", log, "/logs/torchrun"))
    verdict = verdict_of(
        end(0, "", exit_code=-15), end(1, OWN), end(2, "", exit_code=-9), launchers=(launcher,)
    )  # fmt: skip
    assert (culprits(verdict), verdict.teardown) == ([1], (0, 2))


def test_cuda_failure_after_a_device_fault_is_hardware_but_an_own_exception_is_not() -> None:
    fault = NodeFault("n0", "xid", "Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus", at_ns=NOW)
    ends = (end(0, CUDA, at_s=8.0, bound_s=0.1), end(2))
    verdict = verdict_of(*ends, faults=(fault,))
    assert (verdict.kind, culprits(verdict), verdict.confidence) == ("hardware", [0], "likely")
    assert any("Xid" in line for line in verdict.evidence)
    assert verdict_of(end(0, OWN, at_s=8.0), end(2), faults=(fault,)).kind == "exception"
    assert verdict_of(end(0), end(2, CUDA, at_s=8.0), faults=(fault,)).kind == "exception"  # on another node
    late = verdict_of(end(0, CUDA, at_s=3_600.0), end(2), faults=(fault,))
    assert late.kind == "exception"


def test_lost_node_is_the_cause_of_the_end_of_its_ranks() -> None:
    loss = NodeLoss("n1", "no SSH, no ping", NOW, NOW + SECOND)
    ends = (
        end(0),
        end(1),
        end(2, None, state="unknown", exit_code=None),
        end(3, None, state="unknown", exit_code=None),
    )
    verdict = verdict_of(*ends, losses=(loss,))
    assert (verdict.kind, culprits(verdict)) == ("node_lost", [2, 3])


def test_node_that_was_out_of_sight_while_a_rank_failed_is_not_the_cause() -> None:
    loss = NodeLoss("n1", "connection closed", NOW, NOW + SECOND)
    verdict = verdict_of(end(0), end(1), end(2, None, exit_code=1), end(3), losses=(loss,))
    assert (verdict.kind, culprits(verdict)) == ("unknown", [2])
    cut_off = verdict_of(end(0), end(1), end(2, None, exit_code=-15), end(3), losses=(loss,))
    assert cut_off.kind == "node_lost"
    by_launcher = LauncherOutput(RankOutput("stderr", "srun: error: n1: task 2: Exited with exit code 1\n", "/log"))
    gone = [end(rank, None, state="unknown", exit_code=None) for rank in (2, 3)]
    assert verdict_of(end(0), end(1), *gone, launchers=(by_launcher,), losses=(loss,)).kind == "node_lost"


def test_rank_that_left_with_0_is_named_without_an_exception() -> None:
    verdict = verdict_of(end(0), end(1, "", exit_code=0), end(2))
    assert (verdict.kind, culprits(verdict)) == ("unknown", [1])
    assert "exited with 0 while other ranks still" in verdict.summary


@pytest.mark.parametrize(("nodes", "left"), [(("n0", "n0", "n1", "n1"), [1]), (("n0",) * 4, [1, 2, 3])])
def test_table_of_a_launcher_is_of_the_ranks_of_its_node(nodes: tuple[str, ...], left: list[int]) -> None:
    table = (
        "Root Cause (first observed failure):\n[0]:\n  host      : n0\n  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : 1 (pid: 100) \n"
    )
    launcher = LauncherOutput(RankOutput("stderr", table, "/logs/torchrun"), node="n0")
    codes, texts = (1, 0, None, None), (CLOSED, "", "", "")
    ends = [end(rank, texts[rank], exit_code=codes[rank], node=node) for rank, node in enumerate(nodes)]
    verdict = verdict_of(*ends, launchers=(launcher,))
    assert culprits(verdict) == left
    assert "exited with 0 while other ranks still" in verdict.summary


def test_data_worker_that_died_while_its_rank_read_from_it_is_the_cause() -> None:
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer"
    worker = raised("RuntimeError: DataLoader worker (pid 267) is killed by signal: Killed. ")
    text = (
        raised(reset, "/usr/lib/python3.11/multiprocessing/connection.py", 378)
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    verdict = verdict_of(end(0, text + worker), end(1), end(2), end(3))
    assert (verdict.kind, culprits(verdict)) == ("exception", [0])
    assert "a data loader worker died" in verdict.summary
    other = verdict_of(end(0, text + raised("RuntimeError: no more data")), end(1), end(2), end(3))
    assert culprits(other) == []


@pytest.mark.parametrize("last", ["", "RuntimeError: DataLoader worker (pid 267) is killed by signal: Terminated. "])
def test_cancellation_that_also_ends_data_workers_names_nobody(last: str) -> None:
    libraries = (
        "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        "/usr/lib/python3.11/multiprocessing/c.py",
    )
    text = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 20, in <module>\n    main()\n'
    text += "".join(f'  File "{file}", line 9, in get\n    get()\n' for file in libraries)
    text += "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    if last:
        text += "\nDuring handling of the above exception, another exception occurred:\n\n" + raised(last)
    ended = [end(rank, "", exit_code=-15) for rank in (1, 2, 3)]
    outputs = {
        "launcher": "slurmstepd: error: *** STEP 17.0 ON n0 CANCELLED AT 2026-11-29T12:00:00 ***\n",
        "unknown": "srun: error: n0: task 0: Exited with exit code 1\n",
    }
    for kind, output in outputs.items():
        verdict = verdict_of(end(0, text), *ended, launchers=(LauncherOutput(RankOutput("stderr", output, "/log")),))
        assert (verdict.kind, culprits(verdict)) == (kind, [])


def test_consequences_on_all_ranks_name_nobody() -> None:
    verdict = verdict_of(end(0), end(1), end(2))
    assert (verdict.kind, culprits(verdict), verdict.confidence) == ("unknown", [], "none")


def test_end_without_an_exception_is_told_by_its_exit_codes() -> None:
    verdict = verdict_of(
        end(0, "step 1\n", exit_code=3), end(1, "step 1\n", exit_code=3), end(2, "step 1\n", exit_code=7)
    )
    assert verdict.kind == "unknown"
    assert "ended with exit codes 3 and 7" in verdict.summary, verdict.summary


def test_two_silent_ranks_with_unknown_exits_name_nobody() -> None:
    silent = [end(rank, "step 1\n", exit_code=None, state="unknown") for rank in (2, 3)]
    assert culprits(verdict_of(end(0), end(1), *silent)) == []


def test_equal_exit_codes_of_unreadable_outputs_name_only_the_first_beyond_the_bounds() -> None:
    def at(rank: int, seconds: float, code: int = 1) -> RankEnd:
        output = RankOutput("stderr", status="unreadable", reason="a pipe: its reader is pid 7 (tee)")
        ended = end(rank, None, at_s=seconds, bound_s=0.25, exit_code=code)
        return msgspec.structs.replace(ended, outputs=(output,))

    unresolved = verdict_of(at(0, 9.0, -15), at(1, 5.0), at(2, 5.2))
    assert culprits(unresolved) == []
    assert "no output of ranks 0-2: a pipe: its reader is pid 7 (tee)" in unresolved.evidence
    resolved = verdict_of(at(0, 9.0, -15), at(1, 5.0), at(2, 7.0))
    assert (culprits(resolved), resolved.kind, resolved.confidence) == ([1], "unknown", "possible")


def test_only_failure_in_a_shared_output_is_that_of_the_only_rank_that_ended_by_itself() -> None:
    table = "[0]:\n  host      : node2\n  rank      : 2 (local_rank: 0)\n  exitcode  : 1 (pid: 26) \n"
    shared = LauncherOutput(
        RankOutput("file", raised("ModuleNotFoundError: No module named 'apex'") + table, "/log"), "node2"
    )
    verdict = verdict_of(end(0, None, exit_code=-15), launchers=(shared,))
    assert [(culprit.rank, culprit.node) for culprit in verdict.culprits] == [(2, "node2")]


def test_aborts_of_which_no_output_is_known_name_nobody() -> None:
    ends = (end(0, None, exit_code=-6), end(1, None, exit_code=-15), end(2, None, exit_code=-6))
    assert culprits(verdict_of(*ends)) == []
    assert culprits(verdict_of(end(0, None, exit_code=-6), end(1, None, exit_code=-15))) == []


def test_failure_in_the_shared_output_of_a_node_is_that_of_its_only_rank_that_ended_by_itself() -> None:
    shared = LauncherOutput(RankOutput("file", OWN, "/log"), "n0")
    ends = (end(0, None, exit_code=-15), end(1, None), end(2, None, exit_code=-15))
    assert culprits(verdict_of(*ends, launchers=(shared,))) == [1]
    [culprit] = verdict_of(end(0, None), end(1, None), launchers=(shared,)).culprits
    assert (culprit.rank, culprit.node) == (None, "n0")


def test_missing_output_is_not_taken_for_silence() -> None:
    ends = (end(0), end(1), end(2, None, exit_code=None, state="unknown"))
    verdict = verdict_of(*ends)
    assert culprits(verdict) == []
    assert "no output of rank 2 on n1" in verdict.evidence


def test_silent_rank_is_not_named_while_nothing_is_known_of_others() -> None:
    quiet = RankEnd(None, node="n1", pid=900, exit_code=None, outputs=(RankOutput("stderr", "step 1\n", "/logs/900"),))
    evidence = CrashEvidence("job", 0, 4, (end(2, exit_code=-15), end(3, exit_code=-15), quiet))
    verdict = diagnose_crash(evidence)
    assert verdict is not None
    assert (verdict.kind, verdict.culprits) == ("unknown", ())
    assert "no data on 2 ranks of 4" in verdict.evidence
    whole = diagnose_crash(msgspec.structs.replace(evidence, world_size=3))
    assert whole is not None
    assert [culprit.node for culprit in whole.culprits] == ["n1"], "it can only be the third one"


def test_attempts_that_fail_alike_or_not_are_listed() -> None:
    def attempt(number: int, text: str, *earlier: CrashVerdict) -> CrashVerdict:
        ends = (end(0), end(1, text))
        verdict = diagnose_crash(CrashEvidence("job", number, 2, ends), earlier)
        assert verdict is not None
        return verdict

    first = attempt(0, OWN)
    same = attempt(1, raised("ValueError: bad label"), first)
    other = attempt(2, raised("KeyError: 'x'"), first, same)
    assert (first.repeats, same.repeats, other.repeats) == (None, True, False)
    assert [line.text for line in other.attempts] == ["ValueError: bad label", "ValueError: bad label", "KeyError: 'x'"]
    assert same.summary.endswith("; attempt 1 failed in the same way as attempt 0")


def test_finding_of_a_verdict_has_its_kind_culprits_and_victims() -> None:
    finding = crash_finding(verdict_of(end(0), end(1, OWN)))
    assert (finding.id, finding.severity, finding.culprits, finding.victims) == (
        "exception",
        "error",
        ("rank 1",),
        ("rank 0",),
    )


def test_text_names_kind_site_source_cascade_and_next_step() -> None:
    text = crash_text(verdict_of(end(0), end(1, OWN), end(2)))
    assert text.splitlines()[0].startswith("✖ crashed  exception  job")
    assert "rank 1 · n0 · pid 101 · exit code 1  in  train.py:12 step" in text
    assert "   12 │ work()" in text
    assert "cascade   [0,2] RuntimeError" in text and "next      Open the file" in text


def test_text_says_that_the_cause_is_unknown() -> None:
    verdict = msgspec.structs.replace(verdict_of(end(0), end(1, OWN), end(2)), kind="unknown")
    assert crash_text(verdict).splitlines()[0].startswith("✖ crashed  cause unknown  job")


def test_lines_are_wrapped_and_printable() -> None:
    verdict = verdict_of(end(0, raised("ValueError: " + "\x1b[31m日本 \u202e" * 40)))
    assert all(line.text.isprintable() for line in crash_lines(verdict, 60))


def torchrun_received(name: str) -> LauncherOutput:
    head = "W1124 11:40:38.782000 31 torch/distributed/elastic/agent/server/api.py:753]"
    log = f"{head} Received {name} death signal, shutting down workers\n"
    return LauncherOutput(RankOutput("file", f"step 41\nstep 42\n{log}", "/logs/torchrun"), "n0")


def terminated(at_s: float = 5.0, code: int = -15) -> tuple[RankEnd, ...]:
    return tuple(end(rank, "", exit_code=code, at_s=at_s, bound_s=0.1) for rank in range(4))


@pytest.mark.parametrize("name", ["2", "15", "Signals.SIGINT", "Signals.SIGTERM"])
def test_job_whose_launcher_got_an_ending_signal_is_a_warning_that_says_who_when_and_where(name: str) -> None:
    unnumbered = RankEnd(None, "n0", 99, outputs=(RankOutput("stderr", "", "/logs/x"),))
    verdict = verdict_of(*terminated(), unnumbered, launchers=(torchrun_received(name),))
    signal = "SIGINT" if name in ("2", "Signals.SIGINT") else "SIGTERM"
    when = "2026-03-01T10:00:05Z"
    assert (
        verdict.summary == f"the job was ended by {signal} to torchrun on n0 at {when} (4 ranks, last printed step 42)"
    )
    assert (verdict.kind, verdict.is_deliberate, crash_finding(verdict).severity) == ("launcher", True, "warning")


def test_job_whose_terminal_was_lost_stays_an_error() -> None:
    verdict = verdict_of(*terminated(), launchers=(torchrun_received("1"),))
    assert (verdict.kind, crash_finding(verdict).severity) == ("launcher", "error")
    assert "SIGHUP to torchrun" in verdict.summary


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-03-01T10:00:04 DUE TO TIME LIMIT ***", "warning"),
        ("slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-03-01T10:00:04 DUE TO PREEMPTION ***", "warning"),
        ("slurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-03-01T10:00:04 ***", "warning"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "warning"),
        ("=>> PBS: job killed: walltime 3610 exceeded limit 3600", "warning"),
        ("  Reason:       Evicted", "error"),
        ("The node was low on resource: memory.", "error"),
    ],
)
def test_end_by_a_scheduler_is_a_warning_unless_it_lacked_a_resource(line: str, severity: str) -> None:
    launcher = LauncherOutput(RankOutput("file", f"{line}\n", "/logs/job"), "n0")
    verdict = verdict_of(*terminated(), launchers=(launcher,))
    assert (verdict.kind, crash_finding(verdict).severity) == ("launcher", severity)


@pytest.mark.parametrize(
    ("state", "severity"), [("CANCELLED", "warning"), ("TIMEOUT", "warning"), ("NODE_FAIL", "error")]
)
def test_state_of_the_job_in_slurm_tells_who_ended_it(state: str, severity: str) -> None:
    fault = NodeFault("n0", "slurm_job", f"Slurm job 77: {state}, exit code 0", subject="77")
    evidence = CrashEvidence("slurm-77.0", 0, 4, terminated(code=-9), faults=(fault,))
    verdict = diagnose_crash(evidence)
    assert verdict is not None and crash_finding(verdict).severity == severity, verdict.summary
    other = diagnose_crash(msgspec.structs.replace(evidence, job="slurm-177.0"))
    assert other is not None and not other.is_deliberate


def test_termination_of_all_ranks_is_deliberate_only_where_no_launcher_can_have_sent_it() -> None:
    assert verdict_of(*terminated()).is_deliberate
    torchrun = LauncherEnd("n0", 9, "torchrun", 1)
    assert not verdict_of(*terminated(), launcher_ends=(torchrun,)).is_deliberate
    assert verdict_of(*terminated(code=-2), launcher_ends=(torchrun,)).is_deliberate


def test_launcher_that_was_killed_is_an_error_also_while_its_ranks_run_on() -> None:
    running = tuple(end(rank, "step 1\n", exit_code=None, state="running") for rank in range(4))
    killed = LauncherEnd("n0", 9, "torchrun", -9, NOW)
    verdict = verdict_of(*running, launcher_ends=(killed,))
    assert (verdict.kind, culprits(verdict), crash_finding(verdict).severity) == ("launcher", [], "error")
    assert "SIGKILL to torchrun on n0" in verdict.summary and "4 ranks still run without it" in verdict.summary


def test_rank_that_failed_before_the_others_were_terminated_is_not_hidden_by_the_signal() -> None:
    failed = end(0, None, exit_code=1, at_s=1.0, bound_s=0.1)
    verdict = verdict_of(failed, *terminated()[1:], launchers=(torchrun_received("15"),))
    assert not verdict.is_deliberate and verdict.kind != "launcher"
    killed = LauncherEnd("n0", 9, "srun", -15, NOW + 6 * SECOND)
    assert not verdict_of(failed, *terminated()[1:], launcher_ends=(killed,)).is_deliberate


def test_termination_on_a_node_that_is_lost_then_stays_an_error() -> None:
    loss = NodeLoss("n0", "restarted", NOW + 7 * SECOND, NOW + 9 * SECOND)
    verdict = verdict_of(*terminated(), launchers=(torchrun_received("15"),), losses=(loss,))
    assert crash_finding(verdict).severity == "error"


def test_ranks_of_several_nodes_that_exit_in_silence_are_not_named_because_each_launcher_names_one() -> None:
    def table(rank: int) -> str:
        entry = f"  host      : n{rank // 2}\n  rank      : {rank} (local_rank: {rank % 2})\n"
        return f"Root Cause (first observed failure):\n[0]:\n{entry}  exitcode  : 1 (pid: {100 + rank}) \n"

    outputs = {rank: RankOutput("file", table(rank), f"/log/{rank}") for rank in (0, 2)}
    launchers = tuple(LauncherOutput(output, f"n{rank // 2}") for rank, output in outputs.items())
    ends = (end(0, ""), end(1, "", exit_code=-15), end(2, ""), end(3, ""))
    assert culprits(verdict_of(*ends, launchers=launchers)) == []


@pytest.mark.parametrize(
    ("code", "words"), [(-7, "crashed with a bus error: SIGBUS"), (-8, "was ended by a signal: SIGFPE"),
                        (-24, "was ended by a signal: SIGXCPU"), (-11, "crashed with a segmentation fault: SIGSEGV")],
)  # fmt: skip
def test_signal_of_a_rank_is_called_by_its_name(code: int, words: str) -> None:
    assert words in verdict_of(end(0, "", exit_code=code), end(1)).summary
