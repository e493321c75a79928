"""NDJSON output to a pipe: whole lines, in order, within a memory limit; a closed reader is not an error."""

import errno
import json
import os
import threading

import pytest

from gconsole.records import Gpu, GpuInfo, Host, Log, Nic, RankStat
from gconsole.session import ndjson
from gconsole.session.ndjson import SampleStream


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno == errno.EBADF


def gpu(number):
    return Gpu(node="n1", index=number, uuid=str(number))


def test_stream_writes_only_the_selected_kinds_in_order(pipe):
    stream = SampleStream(["gpu", "nic"], pipe[1])
    stream([gpu(0), Host(node="n1"), GpuInfo(index=0, uuid="u"), Nic(device="eth0", port=0)])
    stream([Log(source="agent", text="x"), gpu(1), RankStat(job="j", rank=0, pid=1, start_ticks=1, state="idle")])
    stream.close()
    os.close(pipe[1])

    lines = [json.loads(line) for line in os.read(pipe[0], 65536).splitlines()]
    assert [(line["kind"], line.get("index")) for line in lines] == [("gpu", 0), ("nic", None), ("gpu", 1)]


def test_closed_pipe_closes_the_stream_without_a_failure(pipe):
    stream = SampleStream(["gpu"], pipe[1])
    os.close(pipe[0])
    stream([gpu(0)])
    stream.close()

    assert (stream.is_closed, stream.failure, stream.dropped) == (True, None, 0)
    stream([gpu(1)])


def test_unwritable_output_is_a_failure_with_its_errno():
    stream = SampleStream(["gpu"], os.open("/dev/full", os.O_WRONLY))
    stream([gpu(0)])
    stream.close()

    assert stream.is_closed
    assert stream.failure is not None
    assert stream.failure.errno == errno.ENOSPC


def test_slow_reader_causes_counted_drops_and_bounded_memory(pipe, monkeypatch):
    monkeypatch.setattr(ndjson, "MAX_BUFFERED_BYTES", 50_000)
    monkeypatch.setattr(ndjson, "LAST_S", 0.05)
    stream = SampleStream(["gpu"], pipe[1])
    for number in range(5_000):
        stream([gpu(number)])
    stream.close()

    assert stream.dropped > 1_000
    assert sum(map(len, stream._chunks)) < 60_000
    os.close(pipe[0])


def test_patient_stream_waits_for_a_slow_reader_and_drops_nothing(pipe, monkeypatch):
    monkeypatch.setattr(ndjson, "MAX_BUFFERED_BYTES", 10_000)
    read = bytearray()

    def drain():
        while data := os.read(pipe[0], 4096):
            read.extend(data)

    thread = threading.Thread(target=drain)
    thread.start()
    stream = SampleStream(["gpu"], pipe[1], patient=True)
    for number in range(3_000):
        stream([gpu(number)])
    stream.close()
    os.close(pipe[1])
    thread.join()

    assert [json.loads(line)["index"] for line in read.splitlines()] == list(range(3_000))
    assert stream.dropped == 0
