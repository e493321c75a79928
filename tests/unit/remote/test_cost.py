"""CPU budget of the agent: its sampling interval grows over budget and shrinks below it, with a log record."""

from types import SimpleNamespace

import pytest

from gconsole_remote.samplers import cost
from gconsole_remote.samplers.base import Context


class Agent:
    """The part of an agent that the cost sampler uses."""

    def __init__(self):
        self.runs, self.config, self.outbox = (), {"cpu_budget_pct": 2}, SimpleNamespace(posted_bytes=0)
        self.logged, self.unreported = [], 0

    def log(self, severity, text, try_=None):
        self.logged.append((severity, text, try_))


class Watched:
    """The cost sampler with simulated CPU usage."""

    def __init__(self, monkeypatch):
        self.agent, self.context = Agent(), Context()
        self.sampler = cost.CostSampler(self.context, self.agent)
        self._now, self._used_s = 0.0, {cost.resource.RUSAGE_SELF: 0.0, cost.resource.RUSAGE_CHILDREN: 0.0}
        monkeypatch.setattr(cost, "_cpu_s", self._used_s.__getitem__)

    def use(self, pct, seconds):
        for _ in range(seconds):
            self._now += 1.0
            self._used_s[cost.resource.RUSAGE_SELF] += pct / 100.0
            list(self.sampler.tick(self._now))
        return self.context.interval_s


@pytest.fixture
def watched(monkeypatch):
    return Watched(monkeypatch)


def test_startup_cost_does_not_slow_the_sampling(watched):
    assert watched.use(30, seconds=11) == 1.0
    assert watched.use(0.9, seconds=30) == 1.0
    assert watched.agent.logged == []


def test_agent_over_its_cpu_budget_halves_its_sampling_rate_and_warns(watched):
    watched.use(5, seconds=11)

    assert watched.use(5, seconds=10) == 2.0

    (logged,) = watched.agent.logged
    assert logged == (
        "warning", "the agent used 5.0 % of a core, its budget is 2 %: sampling interval raised to 2 s",
        "raise [agent] cpu_budget_pct or sample_interval_ms",
    )  # fmt: skip


def test_slowdown_is_capped_and_reversed_when_the_cost_falls(watched):
    assert watched.use(50, seconds=300) == cost.MAX_SLOWDOWN
    assert watched.use(0.1, seconds=300) == 1.0


def test_slowdown_ends_although_stack_samples_cost_the_same_at_every_interval(watched):
    """As on a busy node that had been captured: 0.6 % for light stack samples, 0.3 to 0.5 % for the rest."""
    assert watched.use(50, seconds=300) == cost.MAX_SLOWDOWN
    watched.context.shared["watch_cpu_pct"] = 0.6
    assert watched.use(0.9, seconds=66) <= 4.0
    assert watched.use(1.1, seconds=60) == 1.0
    assert watched.use(1.9, seconds=60) == 1.0


def test_slowdown_lasts_while_half_the_interval_would_cost_too_much(watched):
    assert watched.use(5, seconds=21) == 2.0
    assert watched.use(1.2, seconds=120) == 2.0
    assert len(watched.agent.logged) == 1


def test_failures_that_could_not_be_logged_are_reported_once(watched):
    watched.agent.unreported = 3
    watched.use(0.1, seconds=2)
    [(severity, text, _)] = watched.agent.logged
    assert severity == "warning" and "3 failures" in text
