"""The targets: functions of bytes that raise if the product fails in an undeclared way; each with its seeds."""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gconsole.analysis.crash.diagnosis import diagnose_crash
from gconsole.fleet import wire
from gconsole.monitor.imports import collectives, outputs, py_spy_dumps
from gconsole.records import BadRecord, decode, encode
from gconsole.session import ndjson
from gconsole.session.export import document
from gconsole.session.format import reader, zstd_frames
from gconsole.session.format.layout import Session, SessionError
from gconsole.session.manage.catalog import import_file
from gconsole.session.record import recovery
from gconsole.transport.gateway import frames as gateway_frames
from gconsole_remote.agent import wire as remote_wire
from gconsole_remote.clocks import packet
from gconsole_remote.comms import answers, flight_recorder, nccl_log, nccl_ras
from gconsole_remote.gateway import frames as remote_frames
from gconsole_remote.proc import limited
from gconsole_remote.stacks import py_spy, pystack

from .archive_input import archive_seeds, read_archive
from .conversation import CAPTURE, HELLO, FuzzedConversation
from .kept_input import kept_seeds, read_kept
from .memory_inputs import objects_seeds, read_objects
from .node_inputs import NODE_INPUTS
from .places import folder_with, in_this_process, scratch
from .process_inputs import PROCESS_INPUTS
from .rows_input import read_rows, rows_seeds
from .sent_session import parquet_seeds, read_parquet
from .step_input import read_step, step_seeds

TESTS = Path(__file__).parents[1]
FLIGHT = TESTS / "unit/comms/recorded"
#: Inputs that once caused failures, by target.
FOUND = Path(__file__).parent / "found"
RECORDINGS = TESTS / "hangs/recordings"


@dataclass(frozen=True)
class Target:
    """One parser of external input. `read` raises only if the product failed; `seeds` are valid inputs."""

    name: str
    what: str
    read: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    most: int = 65_536  # maximum bytes of one input


def _recorded_lines(most: int = 400) -> list[bytes]:
    """Output of real agents, from a recorded hang."""
    path = sorted(RECORDINGS.glob("a*.ndjson.xz"))[0]
    return lzma.decompress(path.read_bytes()).splitlines()[:most]


def _one_of_each_kind() -> list[bytes]:
    line_of_kind: dict[str, bytes] = {}
    for line in _recorded_lines(4000):
        line_of_kind.setdefault(str(json.loads(line).get("kind")), line)
    return list(line_of_kind.values())


def read_wire(data: bytes) -> None:
    """Frames of both sides: split into lines at any chunk boundary, unpacked, decoded."""
    step = 1 + data[0] if data else 1
    lines = wire.LineSplitter()
    with contextlib.suppress(wire.MalformedFrame):
        for offset in range(1, len(data), step * 7):
            for line in lines.feed(data[offset : offset + step * 7]):
                _read_line(line)


def _read_line(line: bytes) -> None:
    _, greeting = wire.split_greeting(line)
    if greeting:
        with contextlib.suppress(wire.MalformedFrame):
            if wire.read_lacking(greeting) is None:
                wire.read_hello(greeting)
    with contextlib.suppress(wire.MalformedFrame):
        unpacked = wire.unpack(line)
        assert len(unpacked) <= wire.MAX_LINE
        wire.read_frame(unpacked)
    with contextlib.suppress(remote_wire.BadFrame):
        frame = remote_wire.decode(line)
        with contextlib.suppress(ValueError):
            remote_wire.encode(frame)


def read_gateway(data: bytes) -> None:
    """Frames of a gateway, compressed and as they are, and the console's frames as the gateway reads them."""
    for stream in (data, zlib.compress(data, 1)[:-4]):
        decoder = gateway_frames.FrameDecoder()
        with contextlib.suppress(gateway_frames.MalformedGatewayFrame):
            for offset in range(0, len(stream), 4096):
                decoder.feed(stream[offset : offset + 4096])
                while not decoder.is_empty:
                    for frame in decoder.next_frames():
                        _read_gateway_frame(frame)
    with contextlib.suppress(remote_wire.BadFrame):
        for _, _, payload in remote_frames.FrameReader().feed(data):
            remote_frames.number_of(payload)


def _read_gateway_frame(frame: gateway_frames.GatewayFrame) -> None:
    for read in (gateway_frames.read_end, gateway_frames.read_number):
        with contextlib.suppress(gateway_frames.MalformedGatewayFrame):
            read(frame)


def _gateway_seeds() -> list[bytes]:
    kinds = gateway_frames.Kind
    payloads = ((kinds.DATA, b'{"kind":'), (kinds.END, b'{"status":255,"error":""}'), (kinds.CREDIT, b"\0\0\1\0"),
                (kinds.LACKS, b""), (kinds.PING, bytes(8)))  # fmt: skip
    frames = [gateway_frames.encode(kind, 1, payload) for kind, payload in payloads]
    return [*frames, b"".join(frames)]


def _wire_seeds() -> list[bytes]:
    packed = remote_wire.encode({"re": 1, "ok": ["x" * 70_000]})
    gap = {"gap": [1, 2], "reason": "buffer"}
    frames_ = [{"gconsole_lacks": "a" * 64}, HELLO, {"pong": 1, "t": 2, "mono": 3}, gap, {"re": 7, "ok": {"a": [1.5]}}]
    return [b"\x20" + b"motd\n" + b"\n".join(map(msgspec.json.encode, frames_)) + b"\n", b"\xff" + packed]


def read_link(data: bytes) -> None:
    """A whole conversation, after a valid hello unless the first byte selects otherwise."""
    conversation = FuzzedConversation()
    if data[:1] < b"\xf0":
        conversation.send_hello()
    step = 1 + (data[0] if data else 0) * 16
    for offset in range(1, len(data), step):
        conversation.receive(data[offset : offset + step])
    conversation.check()


def _link_seeds() -> list[bytes]:
    lines = _one_of_each_kind()
    numbered = []
    for seq, line in enumerate(lines, 1):
        fields = json.loads(line)
        fields = {**fields, "capture": CAPTURE} if "capture" in fields else fields
        numbered.append(json.dumps({**fields, "seq": seq}, separators=(",", ":")).encode())
    whole = b"\n".join(numbered) + b"\n"
    packed = msgspec.json.encode({"z": base64.b64encode(zlib.compress(numbered[0])).decode()})
    hello = msgspec.json.encode(HELLO)
    return [
        b"\x10" + whole,
        *(b"\x7f" + line + b"\n" for line in numbered),
        b"\xff" + hello + b"\n",
        b"\x40" + packed + b"\n",
        b"\x40" + b'{"gap":[1,5],"reason":"x"}\n{"re":1,"ok":{}}\n',
    ]


def read_record(data: bytes) -> None:
    """One record: decoded by the console, encoded, and decoded again."""
    try:
        record = decode(data)
    except BadRecord:
        return
    once = encode(record)
    assert encode(decode(once)) == once


def read_pyspy(data: bytes) -> None:
    """Output of py-spy and pystack, as the agent parses it."""
    with contextlib.suppress(ValueError):
        py_spy.parse(data, frozenset(["step", py_spy.ALL]))
    with contextlib.suppress(ValueError):
        pystack.parse(data.decode("utf-8", "backslashreplace"), 1, frozenset(["step"]))


def _pyspy_seeds() -> list[bytes]:
    frame = {
        "name": "step",
        "filename": "/train.py",
        "module": None,
        "short_filename": "train.py",
        "line": 3,
        "locals": [{"name": "step", "addr": 1, "arg": False, "repr": "7"}],
    }
    thread = {
        "pid": 1,
        "thread_id": 2,
        "thread_name": "MainThread",
        "os_thread_id": 1,
        "active": True,
        "owns_gil": True,
        "frames": [frame, frame],
        "process_info": None,
    }
    text = (
        "Traceback for thread 1 (python3) [Has the GIL] (most recent call last):\n"
        '    (Python) File "/train.py", line 3, in step\n      Locals:\n        step: 7\n'
    )
    return [json.dumps([thread, thread]).encode(), text.encode()]


def read_dumps(data: bytes) -> None:
    """A folder with one py-spy dump, JSON or text, as `gconsole diagnose` reads it."""
    with (
        folder_with("node1.rank3.txt", data) as folder,
        in_this_process(py_spy_dumps),
        contextlib.suppress(py_spy_dumps.NoDumps),
    ):
        for record in py_spy_dumps.records_of(folder).records:
            encode(record)


def _dumps_seeds() -> list[bytes]:
    text = b'Process 7: python train.py\nPython v3.11\n\nThread 7 (active+gil): "MainThread"\n    step (train.py:3)\n'
    return [*_pyspy_seeds(), text]


def read_flight(data: bytes) -> None:
    """A dump of PyTorch's Flight Recorder, JSON or pickle: parsed by the agent, and imported."""
    try:
        dump = flight_recorder.parse(data, time.monotonic() + 5.0)
    except flight_recorder.BadDump:
        return
    answers.check_dump(_as_answered(dump))
    with folder_with("rank_3", data) as folder, in_this_process(collectives):
        for fact in collectives.import_folder(folder).records:
            encode(fact)


def _as_answered(parsed: Any) -> Any:
    """As the agent gets it from the child that parses."""
    try:
        return limited._restored(type(parsed), json.dumps(vars(parsed)).encode("ascii"))
    except ValueError as error:
        raise AssertionError("a parser's own answer is refused") from error


def _flight_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(FLIGHT.glob("*.[jp]*")) if path.suffix in (".json", ".pickle")]


def read_library(data: bytes) -> None:
    """Output of communication libraries: NCCL RAS, NCCL's log, Inspector's log; detected by content."""
    with contextlib.suppress(nccl_ras.BadRasResponse):
        status = nccl_ras.parse(data)
        answers.check_ras(_as_answered(status))
    for parse in (nccl_log.parse_log, nccl_log.parse_inspector):
        answers.check_log(_as_answered(parse(data)))
    with folder_with("rank_3.log", data) as folder, in_this_process(collectives):
        for fact in collectives.import_folder(folder).records:
            encode(fact)


def _library_seeds() -> list[bytes]:
    log = (
        b"n1:42:43 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x9 - Init"
        b" COMPLETE\nn1:42:42 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 op 0"
        b" root 0 comm 0x1 [nranks=2] stream 0x3\n"
    )
    perf = json.dumps(
        {
            "header": {"id": "0x9", "rank": 0, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": "n1", "pid": 42},
            "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 8},
        }
    ).encode()
    ras_text = b"NCCL version 2.27.3\n\nJob summary\n===========\n\n  Nodes  Processes\n      1          2\n"
    ras_json = b'{"nccl_version":"2.28","communicators":[{"hash":"0x1","size":2,"ranks":[{"rank":0,"status":{}}]}]}'
    return [log, perf, ras_text, ras_json]


def read_outputs(data: bytes) -> None:
    """Output of a rank and of its launcher, as `gconsole diagnose` reads a folder of logs."""
    with folder_with("rank_3.log", data) as folder:
        (folder / "slurm-1.out").write_bytes(data[: len(data) // 2])
        with in_this_process(outputs):
            attempts = outputs.import_outputs(folder, "fuzzed").attempts
        for attempt in attempts:
            verdict = diagnose_crash(attempt)
            assert verdict is None or len(msgspec.json.encode(verdict)) < 1 << 20


def _outputs_seeds() -> list[bytes]:
    logs = sorted((TESTS / "unit/analysis/crash/logs").glob("*.txt"))
    return [path.read_bytes() for path in logs if path.stat().st_size < 6_000]


def read_segment(data: bytes) -> None:
    """A segment of a session: scanned, read leniently, verified and recovered.

    If the first byte is odd, the rest becomes the payload of a frame with valid checksums, as an attacker would
    write it.
    """
    if data[:1] and data[0] & 1:
        data = zstd_frames.pack(data[1:].split(b"\n"), {"gpu": 1}, 1, 2)
    with _session(data) as session:
        for record in reader.lenient(session.path, lambda damage: None):
            encode(record)
        with contextlib.suppress(SessionError):
            recovery.verify(session)
        with contextlib.suppress(SessionError):
            recovery.recover(session)
        with contextlib.suppress(SessionError):
            for record in reader.records(session.path):
                encode(record)


def _segment_seeds() -> list[bytes]:
    lines = _one_of_each_kind()
    two_frames = zstd_frames.pack(lines[:1], {"x": 1}, 1, 2) * 2
    return [b"\x01" + b"\n".join(lines), zstd_frames.pack(lines, {"gpu": len(lines)}, 1, 2), two_frames]


def read_import(data: bytes) -> None:
    """`gconsole sessions import FILE`: a session as one JSON document, or NDJSON records."""
    with folder_with("night.json", data) as folder:
        try:
            session, _ = import_file(folder / "night.json", None, folder / "sessions")
        except (SessionError, ndjson.RecordFileError):
            assert not any((folder / "sessions").glob("*")), "a failed import left files"
            return
        assert session.path.parent == folder / "sessions", f"it chose its path: {session.path}"


def _import_seeds() -> list[bytes]:
    lines = _one_of_each_kind()
    facts = msgspec.json.encode(document.SessionFacts(name="night", cluster="lab"))
    whole = b'{"schema": "gconsole.session/1",\n "session": %s,\n "records": [%s]}\n' % (facts, b",\n".join(lines))
    return [whole, b"\n".join(lines) + b"\n"]


def read_meta(data: bytes) -> None:
    """`session.json`, the metadata of a session; and a hello of the clock probes over UDP, which anyone can send."""
    with _session(b"") as session:
        session.meta_path.write_bytes(data)
        with contextlib.suppress(SessionError):
            session.read()
        with contextlib.suppress(SessionError):
            recovery.recover(session)
    seal = packet.sealer(b"k" * packet.KEY_BYTES)
    if packet.head(data) is not None:
        assert not packet.is_genuine(seal, data), "a packet without the key was accepted"
        packet.times(data)


def _meta_seeds() -> list[bytes]:
    meta = msgspec.json.encode(document.meta_of(document.SessionFacts(name="night")))
    return [meta, packet.pack(packet.sealer(b"x" * packet.KEY_BYTES), packet.REQUEST, 1, 2, 0)]


@contextlib.contextmanager
def _session(segment: bytes) -> Iterator[Session]:
    with scratch() as folder:
        session = Session(folder / "night")
        session.segments_folder.mkdir(parents=True)
        session.segment(1).write_bytes(segment)
        yield session


TARGETS = {
    target.name: target
    for target in (
        Target("wire", "wire frames, both sides", read_wire, _wire_seeds),
        Target("gateway", "frames of a gateway, both sides", read_gateway, _gateway_seeds),
        Target("kept", "what a gateway has kept on its disk", read_kept, kept_seeds),
        Target("step", "output of srun with labels", read_step, step_seeds),
        Target("link", "a node's bytes through link, hub, store and recorder", read_link, _link_seeds),
        Target("rows", "rows of records, and the same as objects", read_rows, rows_seeds, most=16_384),
        Target("record", "one record", read_record, _one_of_each_kind, most=16_384),
        Target("py-spy", "output of py-spy and pystack, parsed by the agent", read_pyspy, _pyspy_seeds, most=16_384),
        Target("dumps", "py-spy dumps, imported", read_dumps, _dumps_seeds, most=16_384),
        Target("flight", "Flight Recorder dumps, pickle and JSON", read_flight, _flight_seeds, most=32_768),
        Target("library", "RAS, NCCL's and Inspector's logs, imported", read_library, _library_seeds, most=16_384),
        Target("outputs", "outputs of ranks and launchers, diagnosed", read_outputs, _outputs_seeds, most=16_384),
        Target("segment", "session segments, with recovery", read_segment, _segment_seeds, most=32_768),
        Target("parquet", "Parquet of an untrusted session", read_parquet, parquet_seeds, most=32_768),
        Target("import", "a session as JSON or NDJSON, imported", read_import, _import_seeds),
        Target("meta", "session.json, and clock probe packets", read_meta, _meta_seeds, most=4_096),
        Target("archive", "archives of clients, unpacked", read_archive, archive_seeds, most=32_768),
        Target("objects", "objects in the memory of a process", read_objects, objects_seeds),
        *(Target(name, *parts, most=8_192) for name, parts in (NODE_INPUTS | PROCESS_INPUTS).items()),
    )
}
