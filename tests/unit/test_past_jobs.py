"""Jobs that had ended before the console came: a warning for an hour, no name without a cause, nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gconsole.analysis.finding import FindingDraft
from gconsole.core.store import Store
from gconsole.monitor.crash import SETTLE_NS, CrashFindings, crash_findings, crash_verdicts
from gconsole.monitor.past_jobs import RECENT_NS
from gconsole.records import Host, NodeState, Output, Rank
from gconsole.report.document import exit_code, make_report

S = 1_000_000_000
CAME = 1_800_000_000 * S
SKEW = 40 * S  # of the node's clock
RAISED = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in load\n    {}[key]\nKeyError: "x"\n'
CLOSED = (
    'Traceback (most recent call last):\n  File "/home/u/train.py", line 30, in main\n    dist.all_reduce(x)\n'
    "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:9097\n"
)
HOOKED = "".join(f"[rank3]: {line}\n" for line in RAISED.splitlines())


def error_file(callstack: str, at_s: int = 0, **extra: Any) -> str:
    more = {"py_callstack": callstack, **({"timestamp": str(at_s)} if at_s else {}), **extra}
    return json.dumps({"message": {"message": callstack.splitlines()[-1], "extraInfo": more}})


def a_past_output(
    text: str, local_rank: int = 0, stream: Any = "error_file", ago_s: int = 600, **fields: Any
) -> Output:
    """As an agent sends it that began at `CAME`."""
    path = f"/tmp/torchelastic_a/llama_b/attempt_0/{local_rank}/{stream}"
    t = CAME + 1 * S + SKEW
    own = {"node": "n1", "job": "llama", "pid": None, "start_ticks": None, "path": path, "rx": CAME + S, "t": t}
    return Output(**{"text": text, "size": len(text), "written_at": t - ago_s * S, "stream": stream, **own, **fields})


def a_store(*records: Any) -> Store:
    store = Store()
    store.apply([NodeState(node="n1", state="ok", rx=CAME), NodeState(node="n2", state="ok", rx=CAME), *records])
    return store


def findings(store: Store, at: int = CAME + S, is_last: bool = True) -> list[FindingDraft]:
    store.apply([Host(node="n1", rx=at)])
    return asyncio.run(CrashFindings(store).evaluate(is_last=is_last))


def test_job_that_had_died_is_a_warning_with_its_cause_and_the_time_since():
    store = a_store(a_past_output(error_file(CLOSED), 0), a_past_output(error_file(RAISED), 1))

    (draft,) = findings(store)

    assert (draft.id, draft.severity, draft.job) == ("exception", "warning", "llama")
    assert "KeyError" in draft.text and "train.py:12" in draft.text
    assert draft.text.endswith("it ended 10 min before the console came")
    (verdict,) = crash_verdicts(store)
    assert [(culprit.rank, culprit.node) for culprit in verdict.culprits] == [(None, "n1")]
    assert "/attempt_0/1/" in " ".join(verdict.evidence), "the local rank"


def test_it_counts_only_where_warnings_do():
    store = a_store(a_past_output(error_file(RAISED)))
    store.apply(crash_findings(store))
    report = make_report(store)
    assert [crash.kind for crash in report.crashes] == ["exception"]
    assert exit_code(report) != 1
    assert exit_code(report, ["warning"]) == 1


def test_rank_is_known_by_the_prefix_of_torch():
    store = a_store(a_past_output(error_file(RAISED), 1), a_past_output(HOOKED, 1, "stderr"))
    assert [draft.culprits for draft in findings(store)] == [("rank 3",)]


def test_uncaught_exception_without_an_error_file_is_enough_and_a_logged_one_is_not():
    assert [draft.culprits for draft in findings(a_store(a_past_output(HOOKED, 1, "stderr")))] == [("rank 3",)]
    assert findings(a_store(a_past_output(RAISED + "epoch 3 done\n", 1, "stderr"))) == []
    assert findings(a_store(a_past_output("W0101 a warning\nstep 100 loss 0.1\n", 1, "stderr"))) == []


def test_consequences_alone_name_nobody():
    (draft,) = findings(a_store(*(a_past_output(error_file(CLOSED), number) for number in range(4))))
    assert (draft.id, draft.severity, draft.culprits) == ("unknown", "warning", ())


def test_times_of_error_files_order_two_causes_of_one_node():
    other = RAISED.replace("KeyError", "ValueError")
    texts = [error_file(RAISED, 1_799_999_400), error_file(other, 1_799_999_391)]
    (draft,) = findings(a_store(*(a_past_output(text, number) for number, text in enumerate(texts))))
    assert "ValueError" in draft.text and "KeyError" not in draft.text


def test_interrupt_by_the_user_is_no_finding():
    text = "".join(f"[rank0]: {line}\n" for line in RAISED.replace('KeyError: "x"', "KeyboardInterrupt").splitlines())
    assert findings(a_store(a_past_output(text, 0, "stderr"))) == []


def test_nothing_is_reported_an_hour_after_the_end():
    store = a_store(a_past_output(error_file(RAISED)))
    end = CAME - 600 * S
    assert findings(store, end + RECENT_NS - S) != []
    assert findings(store, end + RECENT_NS + S) == []
    assert crash_verdicts(store) == []


def test_outputs_of_a_job_arrive_before_it_is_judged():
    store = a_store(a_past_output(error_file(RAISED)))
    assert findings(store, CAME + 2 * S, is_last=False) == []
    finding = CrashFindings(store)

    async def soon() -> list[FindingDraft]:
        drafts: list[FindingDraft] = []
        while not drafts:
            drafts = await finding.evaluate(is_last=False)
            await asyncio.sleep(0)
        return drafts

    store.apply([Host(node="n1", rx=CAME + S + SETTLE_NS)])
    assert len(asyncio.run(asyncio.wait_for(soon(), 20))) == 1


@pytest.mark.parametrize("job", ["llama", "llama@10.0.0.1:29500"])
@pytest.mark.parametrize("status", ["present", "exited"])
def test_job_that_is_known_otherwise_is_judged_by_that_alone(job: str, status: Any):
    own = {"job": job, "rank": 0, "pid": 7, "start_ticks": 1, "source": "environ", "exit_code": 0}
    rank = Rank(node="n2", status=status, rx=CAME + S, **own)
    assert findings(a_store(a_past_output(error_file(RAISED)), rank)) == []


def test_job_that_ended_while_the_console_watched_is_not_a_past_one():
    assert findings(a_store(a_past_output(error_file(RAISED), t=CAME + SKEW + 900 * S, rx=CAME + 900 * S,
                                          written_at=CAME + SKEW + 800 * S))) == []  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "[" * 16_000, '{"message":' * 2_000, "null", "[]", '{"message": []}', "1" * 16_000,
        '{"message": {"extraInfo": 3}}',
        '{"message": {"message": null, "extraInfo": {"py_callstack": {"a": [1, 2]}, "timestamp": [1]}}}',
        '{"message": {"message": "x", "extraInfo": {"timestamp": "²99999999999999999999"}}}', "\x1b[31m\x00\x07 error",
        error_file("\x1b]0;title\x07" + RAISED.replace('"x"', '"\x1b[31mtoken=hunter2secret"'), 10**9),
    ],
)  # fmt: skip
def test_crafted_error_files_are_bounded_and_show_no_secret(text: str):
    for draft in findings(a_store(a_past_output(text))):
        assert draft.severity == "warning"
        assert "hunter2secret" not in draft.text + " ".join(draft.evidence)
        assert len(draft.text) < 2_000


TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 12, in load
[rank1]:     {}[key]
[rank1]: KeyError: 'x'
E1128 15:41:02 1 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 1 (pid: 412) of binary: python
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_15:41:02
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 412)
  error_file: <N/A>
"""  # noqa: E501 - as torchrun prints it


def test_job_of_which_only_the_log_of_its_launcher_is_left_is_a_warning_with_its_cause():
    path = "/home/u/train.log"
    store = a_store(a_past_output(TORCHRUN, stream="file", job="train.log", path=path))

    (draft,) = findings(store)

    assert (draft.id, draft.severity, draft.job) == ("exception", "warning", "train.log")
    assert "KeyError" in draft.text
    assert "it ended 10 min before the console came" in draft.text


SPAWNED = """\
Traceback (most recent call last):
  File "/home/u/ddp.py", line 18, in <module>
    mp.spawn(run, nprocs=4)
  File "/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/home/u/ddp.py", line 13, in run
    raise IndexError("list index of the schedule out of range")
IndexError: list index of the schedule out of range
"""  # noqa: W291 - as torch prints it
CLOSED_BY_PEER = "".join(f"[rank2]: {line}\n" for line in CLOSED.replace("in main", "in <module>").splitlines())


@pytest.mark.parametrize(
    ("text", "culprits"),
    [
        pytest.param(SPAWNED, [("rank 1",)], id="mp.spawn"),
        pytest.param(HOOKED, [("rank 3",)], id="a rank"),
        pytest.param(CLOSED_BY_PEER, [], id="a rank that lost its peer"),
    ],
)
def test_log_without_a_launcher_shows_the_rank_that_raised(text: str, culprits: list[tuple[str, ...]]):
    store = a_store(a_past_output("step 10\n" + text, stream="file", job="ddp.log", path="/home/u/ddp.log"))
    assert [draft.culprits for draft in findings(store)] == culprits
