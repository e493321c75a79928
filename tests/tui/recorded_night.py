"""A session of ten minutes for tests of replays."""

from __future__ import annotations

import copy
from pathlib import Path

from fake_cluster import SECOND, FakeCluster

from gconsole.records import Finding, Mark, Record
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, RecorderRun, Session, named


class RecordingCluster(FakeCluster):
    """A cluster that keeps its published records."""

    def __init__(self, *names: str) -> None:
        self.records: list[Record] = []
        super().__init__(*names)

    def publish(self, *records: Record) -> None:
        super().publish(*records)
        self.records += map(copy.copy, records)


def write_night(folder: Path) -> Session:
    """Ten minutes of two nodes and a job: a capture after three, a mark after five, a node lost after eight."""
    cluster = RecordingCluster("node1", "node2")
    began = cluster.now_ns
    cluster.up()
    cluster.gpus()
    cluster.job("demo-ring", 8, per_node=4)
    for minute in range(1, 11):
        cluster.now_ns = began + minute * 60 * SECOND
        cluster.up(*(["node1"] if minute > 8 else []))
        if minute == 3:
            cluster.publish(Finding(id="gpu_idle", severity="warning", confidence="likely",
                                    text="a GPU of node2 idles", first_seen=cluster.now_ns))  # fmt: skip
        if minute == 5:
            cluster.publish(Mark(text="the loss went up"))
        if minute == 8:
            cluster.lose("node2")
    session = named("night", folder)
    meta = Meta(cluster="h100-pod", created=began, parts=(RecorderRun(began=began, how="stopped"),))
    writer.write_session(session, cluster.records, meta)
    return session
