"""Outputs of ranks in the store: the newest of each, within bounds."""

from __future__ import annotations

import pytest

from gconsole.core.store import Store, outputs
from gconsole.records import Output, decode, encode


def an_output(pid: int = 1, **fields: object) -> Output:
    return Output(**{"node": "n1", "job": "j", "pid": pid, "start_ticks": 1, "stream": "stderr", **fields})  # type: ignore[arg-type]


def test_output_record_survives_encoding_and_decoding():
    record = an_output(rank=3, path="/log/3", text="ValueError: x\n", size=14, written_at=5)
    assert decode(encode(record)) == record


def test_newer_text_of_an_output_replaces_the_older_one():
    store = Store()
    store.apply([an_output(text="a"), an_output(text="ab"), an_output(pid=2, text="c"), an_output(path="/x", text="d")])
    assert sorted(record.text for record in store.endings.outputs.values()) == ["ab", "c", "d"]


def test_oldest_outputs_are_dropped_and_long_ones_cut_beyond_the_limits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs, "OUTPUTS", 3)
    monkeypatch.setattr(outputs, "MOST_CHARS_IN_ALL", 10_000)
    store = Store()
    store.apply([an_output(pid, text="x" * 9_000 + "end") for pid in range(1, 6)])
    kept = {record.pid: record.text or "" for record in store.endings.outputs.values()}
    assert sorted(kept) == [3, 4, 5]
    assert all(text.endswith("end") for text in kept.values())
    assert sum(map(len, kept.values())) < 10_000 + 3 * outputs.SHORT_CHARS
