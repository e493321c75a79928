"""Events kept by the store."""

from gconsole.core.store import Store
from gconsole.monitor import headless
from gconsole.records import Log, NodeState


def test_headless_store_keeps_only_warning_events():
    store = Store(is_kept=headless.is_warning)
    for number in range(100):
        store.apply([NodeState(node="node1", state="ok" if number % 2 else "lost", rx=number + 1)])
        store.apply([Log(source="console", severity="info", text="recording night goes on")])
    store.apply([Log(node="node1", source="kernel", severity="error", text="NVRM: Xid 79")])
    assert [record.text for _, record in store.events] == ["NVRM: Xid 79"]
    assert headless.warnings(store) == ["node1: NVRM: Xid 79"]
    assert store.nodes["node1"].state.state == "ok"


def test_store_without_an_event_filter_keeps_all_events():
    store = Store()
    store.apply([NodeState(node="node1", state="lost"), Log(source="console", severity="info", text="a word")])
    assert len(store.events_since(0)) == 2
