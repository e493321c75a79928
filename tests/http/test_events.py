"""The event stream: events are delivered to all clients, and disconnected clients are released."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from api_client import Api, until

#: Maximum number of streams.
STREAMS = 32


class Stream:
    """A client of the event stream."""

    def __init__(self, api: Api, path: str = "/events", **headers: str) -> None:
        self.connection = api.connection()
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}", **headers})
        self.response: http.client.HTTPResponse = self.connection.getresponse()

    def events(self) -> Iterator[tuple[str, str, Any]]:
        """Yields (kind, id, record)."""
        kind = name = ""
        while line := self.response.readline().decode().rstrip("\n"):
            while line and not line.startswith("data: "):
                field, _, value = line.partition(": ")
                kind, name = (value, name) if field == "event" else (kind, value) if field == "id" else (kind, name)
                line = self.response.readline().decode().rstrip("\n")
            if line:
                yield kind, name, json.loads(line.removeprefix("data: "))
                self.response.readline()

    def until(self, kind: str, **fields: Any) -> tuple[str, Any]:
        """The first event of that kind with these fields, and its id."""
        for event_kind, name, record in self.events():
            if event_kind == kind and fields.items() <= record.items():
                return name, record
        raise AssertionError(f"the stream ended before {kind} {fields}")

    def close(self) -> None:
        self.connection.close()


@contextmanager
def event_stream(api: Api, path: str = "/events", **headers: str) -> Iterator[Stream]:
    with closing(Stream(api, path, **headers)) as stream:
        assert stream.response.status == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.readline() == b": gconsole events\n"
        stream.response.readline()
        yield stream


def test_event_streams_report_a_reconnected_node_and_resume_by_last_event_id(changing_api: Api) -> None:
    api = changing_api
    with event_stream(api) as all_events, event_stream(api, "/events?kinds=node_state") as node_events:
        api.request("DELETE", "/nodes/node4")
        api.post("/nodes", {"nodes": "node4"}, status=202)
        first, _ = all_events.until("node_state", node="node4", state="connecting")
        name, record = node_events.until("node_state", node="node4", state="ok")
        assert record["kind"] == "node_state"
    with event_stream(api, **{"Last-Event-ID": first}) as again:
        assert again.until("node_state", node="node4")[1]["state"] == "ok", "no event in between is missing"
    with event_stream(api, **{"Last-Event-ID": "0123456789abcdef-7.1"}) as elsewhere:
        api.request("DELETE", "/nodes/node4")
        api.post("/nodes", {"nodes": "node4"}, status=202)
        assert elsewhere.until("node_state", node="node4")[1]["state"] == "expected", "another console's number"
    assert name != first
    api.until_connected(4)


def test_closed_event_stream_frees_its_slot(api: Api) -> None:
    until(lambda: _all_are_free(api))
    streams = until(lambda: _open_streams(api))
    try:
        with closing(Stream(api)) as more:
            assert more.response.status == 503 and json.loads(more.response.read())["name"] == "busy"
        assert api.request("GET", "/").status == 200, "other requests are still answered"
    finally:
        for stream in streams:
            stream.close()
    until(lambda: _all_are_free(api))


def _open_streams(api: Api) -> list[Stream] | None:
    """All available streams; None if one is still in use."""
    streams = [Stream(api) for _ in range(STREAMS)]
    if all(
        stream.response.status == 200 and stream.response.readline() == b": gconsole events\n" for stream in streams
    ):
        return streams
    for stream in streams:
        stream.close()
    return None


def _all_are_free(api: Api) -> bool:
    streams = _open_streams(api)
    for stream in streams or ():
        stream.close()
    return streams is not None


def test_unknown_event_kinds_are_rejected(api: Api) -> None:
    response = api.request("GET", "/events?kinds=finding,nonsense")
    assert response.status == 400 and "nonsense" in response.json["text"]
