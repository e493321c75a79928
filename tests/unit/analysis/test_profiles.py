"""Comparison of sampled stacks: the slow rank and its call are named, and healthy ranks are not."""

from __future__ import annotations

import random

import pytest

from gconsole.analysis.stacks.profiles import RankProfile, compare, parse_frames, profiles_of, straggler_of
from gconsole.present.why import why_speedscope, why_svg, why_text

MAIN = "<module> (/job/train.py:90);step (/job/train.py:40)"
WAIT = f"{MAIN};all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252)"
FORWARD = f"{MAIN};forward (/job/model.py:12);tanh (/job/ops.py:3)"
LOAD = f"{MAIN};next_batch (/job/data.py:7);decode (/job/images.py:55)"
SAMPLES = 40


def profile(rank: int, shares: dict[str, float], noise: float, chance: random.Random, **counters: float) -> RankProfile:
    """Five blocks of samples with these shares; each differs by noise."""
    blocks = []
    for _ in range(5):
        weights = {stack: max(0.0, share + chance.gauss(0, noise)) for stack, share in shares.items()}
        total = sum(weights.values())
        drawn = chance.choices(list(weights), [weight / total for weight in weights.values()], k=SAMPLES)
        blocks.append({stack: drawn.count(stack) for stack in dict.fromkeys(drawn)})
    return RankProfile("job", 0, rank, "node1", tuple(blocks), counters)


def job(slow: dict[str, float] | None, ranks: int = 8, noise: float = 0.03, seed: int = 1) -> list[RankProfile]:
    chance = random.Random(seed)
    usual = {WAIT: 0.6, FORWARD: 0.35, LOAD: 0.05}
    return [profile(rank, slow if slow and rank == 3 else usual, noise, chance) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [4, 8])
def test_slow_call_of_the_rank_that_waits_least_is_named_as_precisely_as_possible(ranks: int) -> None:
    profiles = job({WAIT: 0.2, FORWARD: 0.35, LOAD: 0.45}, ranks)
    chosen = straggler_of(profiles)
    assert chosen is not None
    assert chosen.rank == 3

    found = compare([chosen], [other for other in profiles if other is not chosen], ("rank 3", "its peers"))

    assert found.named is not None
    assert found.named.path[-1] == ("decode", "/job/images.py")
    assert found.named.line == 55
    assert found.named.difference == pytest.approx(0.4, abs=0.08)
    assert found.wait_share < found.peer_wait_share
    assert "+" in why_text(found)
    assert "decode (job/images.py:55)" in why_text(found)


@pytest.mark.parametrize("noise", [0.02, 0.08])
def test_healthy_ranks_have_no_straggler(noise: float) -> None:
    assert [seed for seed in range(100) if straggler_of(job(None, noise=noise, seed=seed)) is not None] == []


BACKWARD = f"{MAIN};backward (/venv/lib/python3.11/site-packages/torch/_tensor.py:600)"


@pytest.mark.parametrize("seed", range(10))
def test_slow_rank_is_found_where_the_waiting_is_invisible(seed: int) -> None:
    """The backward pass of DDP waits in C++: the others spend more time in it."""
    chance = random.Random(seed)
    usual, slow = {BACKWARD: 0.7, FORWARD: 0.25, LOAD: 0.05}, {BACKWARD: 0.3, FORWARD: 0.25, LOAD: 0.45}
    profiles = [profile(rank, slow if rank == 3 else usual, 0.03, chance) for rank in range(6)]
    chosen = straggler_of(profiles)
    assert chosen is not None
    assert chosen.rank == 3


def test_healthy_ranks_have_no_straggler_where_the_waiting_is_invisible() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        profiles = [profile(rank, {BACKWARD: 0.7, FORWARD: 0.25, LOAD: 0.05}, 0.06, chance) for rank in range(6)]
        assert straggler_of(profiles) is None, seed


def test_two_ranks_that_differ_in_their_own_ways_are_not_named() -> None:
    chance = random.Random(1)
    shares = [{BACKWARD: 0.5, LOAD: 0.5}, {BACKWARD: 0.5, FORWARD: 0.5}, {BACKWARD: 1.0}, {BACKWARD: 1.0}]
    assert straggler_of([profile(rank, own, 0.02, chance) for rank, own in enumerate(shares)]) is None


@pytest.mark.parametrize("rank", range(8))
def test_rank_that_is_like_its_peers_has_no_difference(rank: int) -> None:
    profiles = job(None)
    found = compare([profiles[rank]], profiles[:rank] + profiles[rank + 1 :], ("it", "its peers"))
    assert found.named is None
    assert "no significant difference" in why_text(found)


def test_waiting_for_others_is_never_the_named_difference() -> None:
    """A rank that waits more than its peers is no cause."""
    profiles = job({WAIT: 0.95, FORWARD: 0.05})
    found = compare([profiles[3]], profiles[:3] + profiles[4:], ("rank 3", "its peers"))
    assert found.named is None


def test_throttled_rank_is_explained_by_the_figure_of_the_kernel() -> None:
    chance = random.Random(4)
    shares = {WAIT: 0.5, FORWARD: 0.5}
    profiles = [
        profile(rank, shares, 0.02, chance, throttled_s=0.4 if rank == 2 else 0.0, cpu_s=0.5) for rank in range(4)
    ]
    found = compare([profiles[2]], profiles[:2] + profiles[3:], ("rank 2", "its peers"))
    assert found.named is None
    assert found.cause is not None
    assert found.cause.name == "throttled_s"
    assert "throttled by the CPU quota: 0.40 s/s, peers 0.00 s/s" in why_text(found)


def test_figure_that_differs_among_the_peers_too_is_no_cause() -> None:
    chance = random.Random(4)
    figures = [0.4, 0.35, 0.0, 0.1]
    profiles = [profile(rank, {FORWARD: 1.0}, 0.0, chance, throttled_s=figures[rank]) for rank in range(4)]
    assert compare(profiles[:1], profiles[1:], ("rank 0", "its peers")).cause is None


def test_whole_job_is_compared_with_an_earlier_run() -> None:
    chance = random.Random(5)
    good = [profile(rank, {FORWARD: 0.9, LOAD: 0.1}, 0.02, chance) for rank in range(4)]
    slow = [profile(rank, {FORWARD: 0.5, LOAD: 0.5}, 0.02, chance) for rank in range(4)]
    found = compare(slow, good, ("this run", "the earlier run"))
    assert found.named is not None
    assert found.named.path[-1][0] == "decode"


def test_frames_of_py_spy_are_parsed() -> None:
    first, second, third = parse_frames("<module> (/a b/train.py:9);run.<locals>.<lambda> (<frozen runpy>:3);native")
    assert (first.function, first.file, first.line) == ("<module>", "/a b/train.py", 9)
    assert (second.function, second.file, second.line) == ("run.<locals>.<lambda>", "<frozen runpy>", 3)
    assert (third.function, third.file) == ("native", "")


def test_reply_of_a_node_becomes_profiles_with_figures_per_second() -> None:
    rank = {"job": "j", "attempt": 0, "rank": 1, "pid": 7, "gpu": None, "problem": "",
            "blocks": [[[FORWARD, 3]]], "counters": {"cpu_s": 5.0, "throttled_s": None}}  # fmt: skip
    (made,) = profiles_of({"ranks": [rank, {**rank, "rank": None}], "wall_s": 10.0, "cpu_s": 0.2}, "node1")
    assert made.counters == {"cpu_s": 0.5, "throttled_s": None}
    assert made.samples == 3


def test_flame_graph_and_speedscope_hold_both_sides() -> None:
    profiles = job({WAIT: 0.2, FORWARD: 0.35, LOAD: 0.45})
    sides = {"rank 3": [profiles[3]], "its peers": profiles[:3] + profiles[4:]}
    found = compare(*sides.values(), ("rank 3", "its peers"))

    svg, scope = why_svg(found), why_speedscope(sides, "schema")

    assert svg.count("<rect") == len({call.path for call in found.calls if call.share > 0})
    assert "decode" in svg
    assert '"name": "rank 3"' in scope
    assert '"name": "its peers"' in scope
