"""Clock offset between two nodes from two SSH pings: bounds contain the true offset, whatever the path delays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gconsole.fleet.clocks.ssh_probe import combine
from gconsole.fleet.rpc import Ping

MS = 1_000_000
way = st.integers(0, 500 * MS)


@given(start=st.integers(0, 10**15), gap=st.integers(-300 * MS, 300 * MS), out=st.tuples(way, way),
       back=st.tuples(way, way), ahead=st.integers(-(10**15), 10**15))  # fmt: skip
def test_the_true_offset_lies_between_the_extremes(start, gap, out, back, ahead):
    """The near node's clock equals the console's; the far node's is `ahead` ns of it."""
    near = Ping(start, start + out[0] + back[0], 0, start + out[0])
    sent = start + gap
    far = Ping(sent, sent + out[1] + back[1], 0, sent + out[1] + ahead)

    exchange = combine(near, far)

    upper, lower = exchange.t2 - exchange.t1, exchange.t2 - exchange.t4
    assert lower <= ahead <= upper
    round_trips = sum(out) + sum(back)
    assert exchange.rtt == upper - lower
    assert round_trips <= exchange.rtt <= round_trips * 1.001 + 2
