"""Event ids: a client resumes after the last event it received, also within a batch."""

from __future__ import annotations

from gconsole.core.store import Store
from gconsole.records import Mark
from gconsole.web.resources.events import EventPosition, _after


def test_client_resuming_mid_batch_gets_each_remaining_event_once() -> None:
    store = Store()
    store.apply([Mark(text="a"), Mark(text="b"), Mark(text="c")])
    store.apply([Mark(text="d")])
    places = [place for place, _ in _after(store, EventPosition(0, 0))]

    for received in range(5):
        since = places[received - 1] if received else EventPosition(0, 0)
        assert "".join(record.text for _, record in _after(store, since)) == "abcd"[received:]
    assert sorted(set(places)) == places
