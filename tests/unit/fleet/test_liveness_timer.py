"""One timer for all connections: pings into silence only, and no node is called lost while the console is late."""

from __future__ import annotations

import asyncio
import time

from gconsole.analysis.health import health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub, Published
from gconsole.fleet.liveness_timer import LATE_S, ON_TIME_S, SETTLE_S, LivenessTimer
from gconsole.transport.login_limiter import LoginLimiter


def findings_of(records: list[Published]) -> list[str]:
    facts = HealthState(10.0, 50.0)
    facts.add(records)
    return [finding.id for finding in health_findings(facts, HealthConfig())]


async def test_a_late_check_judges_no_silence_and_is_a_finding_until_the_console_is_on_time():
    now, hub = [0.0], Hub()
    records: list[Published] = []
    hub.subscribe(records.extend)
    liveness_timer = LivenessTimer(hub, lambda: now[0])
    judged: list[bool] = []

    def judge(is_late: bool) -> float:
        judged.append(is_late)
        return 0.0

    remove = liveness_timer.add(judge)

    def check_at(instant: float) -> None:
        now[0] = instant
        liveness_timer.check()

    check_at(0.25)
    assert judged == [False]
    assert findings_of(records) == []
    check_at(0.5 + 3 * LATE_S)
    check_at(0.75 + 3 * LATE_S)
    assert judged == [False, True, True]
    assert findings_of(records) == ["console_late"]
    check_at(now[0] + SETTLE_S)
    assert judged[-1] is False
    while now[0] < 0.75 + 3 * LATE_S + ON_TIME_S:
        check_at(now[0] + 0.25)
    assert findings_of(records) == []
    remove()
    judged.clear()
    await asyncio.sleep(0.6)
    assert judged == [], "no check after its end"


async def test_checks_run_while_the_loop_is_free_and_are_late_after_it_was_blocked():
    liveness_timer = LivenessTimer(Hub())
    judged: asyncio.Queue[bool] = asyncio.Queue()

    def judge(is_late: bool) -> float:
        judged.put_nowait(is_late)
        return 0.0

    remove = liveness_timer.add(judge)
    async with asyncio.timeout(30):
        while await judged.get():  # a busy machine may itself be late at first
            pass
        time.sleep(LATE_S + 1.0)  # noqa: ASYNC251 - blocks the loop on purpose
        assert await judged.get() is True
    remove()


async def test_connection_is_checked_when_it_is_due_and_not_after_an_earlier_check_ended_it():
    now, checked = [0.0], []
    liveness_timer = LivenessTimer(Hub(), lambda: now[0])

    def quiet(is_late: bool) -> float:
        checked.append(("quiet", now[0]))
        return 0.0

    def busy(is_late: bool) -> float:
        checked.append(("busy", now[0]))
        if now[0] >= 1.25:
            remove_last()
        return 1.0

    def last(is_late: bool) -> float:
        checked.append(("last", now[0]))
        return 1.0

    removes = [liveness_timer.add(quiet), liveness_timer.add(busy)]
    remove_last = liveness_timer.add(last)
    for step in range(1, 7):
        now[0] = 0.25 * step
        liveness_timer.check()
    times = {name: [at for who, at in checked if who == name] for name in ("quiet", "busy", "last")}
    assert times == {"quiet": [0.25, 0.5, 0.75, 1.0, 1.25, 1.5], "busy": [0.25, 1.25], "last": [0.25]}
    for remove in removes:
        remove()


async def test_no_login_begins_while_the_console_is_late():
    late = [True]
    limiter = LoginLimiter(4, lambda: late[0])
    began = asyncio.Event()

    async def log_in() -> None:
        async with limiter.enter():
            began.set()

    login = asyncio.create_task(log_in())
    await asyncio.sleep(0.6)
    assert not began.is_set()
    late[0] = False
    async with asyncio.timeout(30):
        await login
    assert began.is_set()


async def test_timers_of_several_fleets_are_due_at_the_same_instants():
    now = [100.03]
    timers = [LivenessTimer(Hub(), lambda: now[0]) for _ in range(2)]
    removes = []
    for timer, begun_s in zip(timers, (100.03, 100.11), strict=True):
        now[0] = begun_s
        removes.append(timer.add(lambda is_late: 0.0))
    for step in range(1, 9):
        now[0] = 100.0 + 0.25 * step + 0.02  # each is a little late
        dues = {timer._due for timer in timers}
        assert dues == {100.0 + 0.25 * step}, "no check is left out, and both are due at once"
        for timer in timers:
            timer.check()
    for remove in removes:
        remove()
