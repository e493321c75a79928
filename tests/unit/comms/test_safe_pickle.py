"""Pickles are parsed without executing anything in them."""

import pickle
import time

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from comms.documents import RECORDED, a_dump, an_entry
from gconsole_remote.comms.safe_pickle import BadPickle, loads

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.pickle")), ids=lambda path: path.name)
def test_torch_pickles_load_as_with_the_standard_pickle(path):
    data = path.read_bytes()
    assert loads(data) == pickle.loads(data)


@pytest.mark.slow
@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
@settings(max_examples=examples(200), deadline=None)
def test_plain_values_survive_a_round_trip(value, protocol):
    assert loads(pickle.dumps(value, protocol)) == value


class Evil:
    """Runs a command when unpickled."""

    def __reduce__(self):
        import os

        return os.system, ("touch /nonexistent/executed",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickle_with_a_callable_is_rejected(protocol):
    with pytest.raises(BadPickle):
        loads(pickle.dumps({"entries": [Evil()]}, protocol))


def test_pickle_with_torch_list_builders_is_rejected():
    with pytest.raises(BadPickle, match="opcode 0x63"):
        loads(b"\x80\x02ctorch.jit._pickle\nbuild_intlist\nq\x00.")


@given(st.binary(max_size=300))
@settings(max_examples=examples(500), deadline=None)
def test_garbage_is_rejected_with_the_byte_position_or_key(data):
    try:
        loads(b"\x80\x02" + data)
    except BadPickle as error:
        assert "byte" in str(error) or "key" in str(error)


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_corrupted_pickle_loads_or_raises_bad_pickle(data):
    whole = bytearray((RECORDED / "missing.0.pickle").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        loads(bytes(whole[: data.draw(st.integers(1, len(whole)))]))
    except BadPickle:
        pass


def test_large_pickle_past_the_deadline_is_rejected():
    data = pickle.dumps(a_dump([an_entry(seq) for seq in range(1, 2000)]), 2)
    with pytest.raises(BadPickle, match="in time"):
        loads(data, deadline=time.monotonic() - 1)
