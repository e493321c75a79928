"""Offsets of ticks: groups of nodes at the same instant, the groups spread evenly over a second."""

from collections import Counter

import pytest

from gconsole.fleet.tick_offsets import TOGETHER, tick_offset_s


def test_small_fleet_samples_at_one_instant():
    assert {tick_offset_s(position) for position in range(TOGETHER)} == {0.0}


@pytest.mark.parametrize("nodes", [17, 33, 100, 512, 1000, 1024, 4096])
def test_groups_are_spread_over_the_second(nodes):
    sizes = Counter(map(tick_offset_s, range(nodes)))
    assert max(sizes.values()) <= TOGETHER
    offsets = sorted(sizes)
    assert offsets[0] >= 0.0 and offsets[-1] < 1.0
    gaps = [after - before for before, after in zip(offsets, [*offsets[1:], offsets[0] + 1.0], strict=True)]
    assert max(gaps) <= 2 * min(gaps)
