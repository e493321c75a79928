"""Findings of jobs that died: raised by themselves, regraded by a restart, and never for a job that ended well."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gconsole.core.store import Store
from gconsole.monitor import crash
from gconsole.monitor.crash import (
    RECOVERED_NS,
    RESTART_NS,
    SETTLE_NS,
    UNWIND_NS,
    CrashFindings,
    crash_findings,
    crashes_of,
)
from gconsole.records import Host, Log, NodeState, Output, Process, Rank

S = 1_000_000_000
TRACE = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in load\n    {}[key]\nKeyError: "x"\n'


def a_rank(number: int, code: int | None = None, at: int = 10 * S, **fields: Any) -> Rank:
    ended = {} if code is None else {"status": "exited", "exit_code": code, "ended_at": at, "alive_at": at - S // 20}
    own = {"job": "j", "rank": number, "pid": 100 + number, "start_ticks": 1, "world_size": 2, "source": "environ"}
    return Rank(**{"node": "n1", "t": at, "rx": at, **own, **ended, **fields})


def an_output(number: int, text: str, at: int = 10 * S, **fields: Any) -> Output:
    own = {"job": "j", "rank": number, "pid": 100 + number, "start_ticks": 1, "stream": "stderr"}
    return Output(**{"node": "n1", "text": text, "size": len(text), "rx": at, **own, **fields})


def launcher(**fields: Any) -> Process:
    return Process(
        node="n1", pid=9, start_ticks=1, ppid=1, uid=1, comm="x", role="launcher", job="j", rx=10 * S, **fields
    )


class Watched:
    """A store and the findings that are raised from it."""

    def __init__(self) -> None:
        self.store = Store()
        self.findings = CrashFindings(self.store)
        self.store.apply([NodeState(node="n1", state="ok")])

    def at(self, instant: int, *records: Any, is_last: bool = False) -> list[tuple[str, str, tuple[str, ...]]]:
        """Apply records, and whatever arrives at this instant; the findings then: (id, severity, culprits)."""
        self.store.apply([*records, Host(node="n1", rx=instant)])
        self.findings._crashes._throttle._due_s = 0.0  # as after the interval between two diagnoses
        drafts = asyncio.run(self.findings.evaluate(is_last=is_last))
        return [(draft.id, draft.severity, draft.culprits) for draft in drafts]


DIED = (a_rank(0, -15, 11 * S), a_rank(1, 1), an_output(1, TRACE))
NAMED = ("exception", "error", ("rank 1",))


def test_job_that_died_is_an_error_as_soon_as_its_reports_have_arrived():
    watched = Watched()
    assert watched.at(9 * S, a_rank(0, at=5 * S), a_rank(1, at=5 * S)) == []
    assert watched.at(11 * S, *DIED) == []
    assert watched.at(10 * S + SETTLE_NS) == [NAMED]
    assert "KeyError" in crash_findings(watched.store)[0].text


def test_end_of_a_run_does_not_wait_for_further_reports():
    assert Watched().at(11 * S, *DIED, is_last=True) == [NAMED]


def test_launcher_that_lives_may_restart_the_job_for_a_while():
    watched = Watched()
    assert watched.at(10 * S + SETTLE_NS, *DIED, launcher()) == []
    assert watched.at(11 * S + RESTART_NS) == [NAMED]


def test_launcher_that_lives_may_end_the_other_ranks_to_restart_the_job():
    watched = Watched()
    ends = [a_rank(1, 1), an_output(1, TRACE), a_rank(0, at=5 * S)]  # rank 0 still lives
    assert watched.at(10 * S + SETTLE_NS, *ends, launcher()) == []
    assert watched.at(10 * S + UNWIND_NS) == [NAMED]


def test_restart_makes_it_a_warning_until_the_new_attempt_has_lived_for_a_while():
    watched = Watched()
    newer = [a_rank(number, at=16 * S, attempt=1, pid=200 + number) for number in range(2)]
    assert watched.at(17 * S, *DIED, launcher(), *newer) == [("exception", "warning", ("rank 1",))]
    assert "attempt 1 runs" in crash_findings(watched.store)[0].text
    assert watched.at(16 * S + RECOVERED_NS) == []


def test_attempt_that_ends_well_after_a_restart_leaves_no_finding():
    watched = Watched()
    newer = [a_rank(number, 0, at=30 * S, attempt=1, pid=200 + number) for number in range(2)]
    assert watched.at(40 * S, *DIED, *newer) == []


@pytest.mark.parametrize("code", [0, None])
def test_job_whose_processes_are_gone_together_without_a_failure_is_no_finding(code: int | None):
    ends = [a_rank(number, 0, exit_code=code) for number in range(2)]
    store = Watched().store
    store.apply([*ends, an_output(0, "epoch 3 done\n"), an_output(1, "saved\n")])
    assert crashes_of(store) == () and crash_findings(store) == []


def test_job_that_is_started_again_under_the_same_name_is_judged_anew():
    watched = Watched()
    assert watched.at(20 * S, *DIED) == [NAMED]
    again = [a_rank(number, at=30 * S, pid=300 + number, start_ticks=900) for number in range(2)]
    assert watched.at(31 * S, *again) == []


@pytest.mark.parametrize("older", ["a", "z"])
def test_job_that_died_last_comes_first_whatever_its_name(older: str):
    store = Watched().store
    ends = [a_rank(1, 1, job=older, pid=300), an_output(1, TRACE, job=older, pid=300)]
    store.apply([*ends, a_rank(1, 1, at=20 * S), an_output(1, TRACE, at=20 * S)])

    assert [each.verdict.job for each in crashes_of(store)] == ["j", older]


def test_secrets_in_outputs_and_kernel_messages_are_hidden_in_verdicts_and_findings():
    token = "hf_" + "a" * 24
    text = TRACE.replace('KeyError: "x"', f"KeyError: 'login with {token}'")
    fault = Log(node="n1", source="kernel", fault="segfault", text=f"python[101]: segfault {token}", pid=101, at=10 * S)
    store = Watched().store
    store.apply([*DIED[:2], an_output(1, text), fault])
    (died,) = crashes_of(store)
    assert "login with ***" in str(died) and token not in str(died)
    assert token not in str(crash_findings(store))


def test_large_job_is_judged_in_the_background_and_at_the_end_awaited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crash, "MANY", 0)
    store = Watched().store
    store.apply([*DIED, Host(node="n1", rx=60 * S)])

    async def raised() -> tuple[int, int, int]:
        source = CrashFindings(store)
        first = await source.evaluate(is_last=False)
        deadline = time.monotonic() + 20.0
        while not (later := await source.evaluate(is_last=False)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        return len(first), len(later), len(await CrashFindings(store).evaluate(is_last=True))

    assert asyncio.run(raised()) == (0, 1, 1)
