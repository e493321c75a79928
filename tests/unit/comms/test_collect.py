"""Collective data that a capture reads from real processes: sockets, files, pipes and logs."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_proc import check

from comms.documents import (
    NCCL_LOG,
    RAS_TEXT,
    RECORDED,
    a_dump,
    a_missing_ras_rank,
    a_ras_answer,
    a_ras_rank,
    an_entry,
    an_inspector_line,
    waiting,
)
from gconsole_remote.comms import collect, flight_recorder_sources, sockets
from gconsole_remote.proc import net_tables
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.process_snapshot import RankRef

FAKE_RANK = Path(__file__).with_name("fake_rank.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")


class Node:
    """Ranks of one test as their agent sees them, and the records that a capture reads from them."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.job = "j"

    def rank(self, *argv, env=None):
        """Start a rank that imitates diagnostic interfaces, or one that only sleeps."""
        sleep = "print('READY', flush=True);import time;time.sleep(600)"
        code = [str(FAKE_RANK), *map(str, argv)] if argv else ["-c", sleep]
        environ = {**{key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "NCCL_"))},
                   "HOME": str(self.folder), **(env or {})}  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, *code], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        assert process.stdout.readline() == "READY\n"
        return process

    def refs(self):
        procfs = ProcFs()
        for number, process in enumerate(self.processes):
            yield RankRef({
                "job": self.job, "attempt": 0, "rank": number, "local_rank": number, "pid": process.pid,
                "start_ticks": procfs.stat(process.pid).start_ticks, "gpu": None, "ns_pid": None,
            })  # fmt: skip

    def read(self, deadline_s=20.0, **wanted):
        """Records of one read."""
        facts = []
        reader = collect.CollectivesReader(
            collect.CollectivesRequest(wanted),
            "c",
            list(self.refs()),
            ProcFs(),
            facts.extend,
            time.monotonic() + deadline_s,
        )
        reader.start()
        reader.join()
        return [check(kind, fields) for kind, fields in facts]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.end()


def of(records, kind, source=None):
    return [record for record in records if type(record).__name__ == kind and source in (None, record.source)]


def a_file(tmp_path, content, name="dump"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_a_job_without_any_source_makes_no_record(node):
    node.rank()
    node.rank()
    assert node.read() == []


@pytest.mark.parametrize("kind", ["worker", "tcp_worker"])
def test_worker_server_is_found_by_its_thread_and_queried(node, tmp_path, kind):
    node.rank(kind, tmp_path / "w.sock", RECORDED / "missing.0.json")
    records = node.read()
    [group] = of(records, "PgStatus")
    assert (group.source, group.status, group.rank, group.process_group) == (
        "worker_server", "ok", 0, ("0", "default_pg"),
    )  # fmt: skip
    assert (group.last_enqueued_collective, group.entries, group.entries_sent) == (3, 3, 3)
    assert group.took_ns > 0
    assert group.read_at > 0
    assert [one.retired for one in of(records, "Collective")] == [True, True, False]


@pytest.mark.slow
def test_other_listening_sockets_of_a_rank_are_never_connected_to(node, tmp_path):
    """Ranks listen for their peers; a foreign connection there may break the job."""
    code = (
        "import socket,sys; l=socket.socket(); l.bind(('127.0.0.1',0)); l.listen(); l.settimeout(3)\n"
        "print('READY', flush=True)\n"
        "try: l.accept(); print('touched', flush=True)\n"
        "except socket.timeout: print('left alone', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    node.processes.append(process)
    assert process.stdout.readline() == "READY\n"
    assert node.read() == []
    assert process.stdout.readline() == "left alone\n"


def test_unix_socket_with_a_path_over_the_address_limit_is_reached(node, tmp_path, monkeypatch):
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    node.rank("worker", "w.sock", RECORDED / "missing.0.json")
    assert of(node.read(), "PgStatus")[0].status == "ok"


@pytest.mark.slow
def test_unresponsive_worker_server_is_reported_as_timed_out_within_the_deadline(node, tmp_path):
    node.rank("slow", tmp_path / "w.sock", "none")
    began = time.monotonic()
    [group] = node.read(deadline_s=1.5)
    assert (group.status, group.source, group.process_group) == ("timed_out", "worker_server", None)
    assert time.monotonic() - began < 10


def test_worker_server_of_a_stopped_rank_is_reported_as_timed_out(node, tmp_path):
    process = node.rank("worker", tmp_path / "w.sock", RECORDED / "missing.0.json")
    process.send_signal(signal.SIGSTOP)
    while ProcFs().stat(process.pid).state != "T":
        time.sleep(0.01)
    [group] = node.read()
    assert (group.status, group.reason) == ("timed_out", "the rank is stopped, so its worker server cannot respond")


@pytest.mark.parametrize("content", [b"hello", b"{}", b"\xff", b'{"entries": 5'])
def test_unparsable_worker_server_reply_is_reported(node, tmp_path, content):
    node.rank("worker", tmp_path / "w.sock", a_file(tmp_path, content))
    [group] = node.read()
    assert group.status == "unreadable"
    assert "worker server" in group.reason


def test_disabled_flight_recorder_is_reported_with_how_to_enable_it(node, tmp_path):
    node.rank("worker", tmp_path / "w.sock", a_file(tmp_path, {"entries": [], "version": "2.10"}))
    [group] = node.read()
    assert group.status == "refused"
    assert "TORCH_FR_BUFFER_SIZE" in group.try_


# -- dumps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_dump_is_read_from_the_path_in_the_environment_of_the_rank(node, tmp_path, variable, form):
    node.rank(env={variable: str(tmp_path / "trace_")})
    shutil.copyfile(RECORDED / f"missing.0.{form}", tmp_path / "trace_0")
    records = node.read()
    [group] = of(records, "PgStatus")
    assert (group.source, group.last_enqueued_collective) == ("fr_dump", 3)
    assert group.read_at == (tmp_path / "trace_0").stat().st_mtime_ns
    assert len(of(records, "Collective")) == 3


def test_dump_is_read_from_the_default_torch_cache_path(node, tmp_path):
    (tmp_path / ".cache" / "torch").mkdir(parents=True)
    shutil.copyfile(RECORDED / "missing.0.pickle", tmp_path / ".cache" / "torch" / "comm_lib_trace_rank_0")
    os.utime(tmp_path / ".cache" / "torch" / "comm_lib_trace_rank_0")
    node.rank()
    assert of(node.read(), "PgStatus")[0].source == "fr_dump"


def numbers(records):
    """Sequence numbers of the newest operations, and of the earlier ones."""
    entries = of(records, "Collective")
    return tuple([entry.collective_seq_id for entry in entries if entry.is_earlier is late] for late in (False, True))


def test_earlier_operations_are_sent_once_and_the_newest_by_every_capture(node, tmp_path):
    dump = tmp_path / "trace_0"
    node.rank(env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})

    dump.write_text(json.dumps(a_dump([an_entry(seq) for seq in range(1, 201)])))
    first = node.read()
    second = node.read()
    dump.write_text(json.dumps(a_dump([an_entry(seq) for seq in range(101, 401)])))
    third = node.read()

    assert numbers(first) == (list(range(137, 201)), list(range(1, 137)))
    assert numbers(second) == (list(range(137, 201)), [])
    assert numbers(third) == (list(range(337, 401)), list(range(201, 337)))
    assert [of(records, "PgStatus")[0].entries_sent for records in (first, second, third)] == [200, 64, 200]
    assert all(entry.frames is None for entry in of(first, "Collective") if entry.is_earlier)


def test_operation_that_was_pending_is_sent_again_once_it_is_finished(node, tmp_path):
    dump = tmp_path / "trace_0"
    node.rank(env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})

    dump.write_text(json.dumps(a_dump([*(an_entry(seq) for seq in range(1, 90)), waiting(90)])))
    first = node.read()
    dump.write_text(json.dumps(a_dump([an_entry(seq) for seq in range(1, 200)])))
    second = node.read()

    assert numbers(first) == (list(range(27, 91)), list(range(1, 27)))
    assert numbers(second) == (list(range(136, 200)), list(range(90, 136)))


def test_number_of_earlier_operations_is_bounded_per_node(node, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MAX_EARLIER", 200)
    for number in range(2):
        node.rank(env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})
        (tmp_path / f"trace_{number}").write_text(json.dumps(a_dump([an_entry(seq) for seq in range(1, 1000)])))

    newest, earlier = numbers(node.read())

    assert len(newest) == 2 * 64
    assert len(earlier) == 200
    assert min(earlier) == 836, "the newest of them"


def test_dump_from_before_the_rank_started_is_ignored(node, tmp_path):
    shutil.copyfile(RECORDED / "missing.0.pickle", tmp_path / "trace_0")
    os.utime(tmp_path / "trace_0", (1, 1))
    node.rank(env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})
    assert node.read() == []


def test_only_regular_dump_files_of_the_rank_user_are_read(node, tmp_path):
    node.rank(env={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})
    os.mkfifo(tmp_path / "trace_0")
    [group] = node.read()
    assert (group.status, "not a regular file" in group.reason) == ("unreadable", True)
    if os.geteuid() == 0:
        (tmp_path / "trace_0").unlink()
        shutil.copyfile(RECORDED / "missing.0.pickle", tmp_path / "trace_0")
        os.chown(tmp_path / "trace_0", 12345, 12345)
        [group] = node.read()
        assert (group.status, "uid 12345" in group.reason) == ("no_permission", True)


def test_dump_pipe_is_written_only_on_request(node, tmp_path):
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_"),
           "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_")}  # fmt: skip
    node.rank("pipe", tmp_path / "pipe_0.pipe", RECORDED / "missing.0.pickle", tmp_path / "trace_0", env=env)
    assert node.read() == []
    assert not (tmp_path / "trace_0").exists()
    assert of(node.read(pipe=True), "PgStatus")[0].last_enqueued_collective == 3


def test_dump_pipe_without_a_reader_is_reported_as_refused(node, tmp_path):
    os.mkfifo(tmp_path / "pipe_0.pipe")
    node.rank(env={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_")})
    [group] = node.read(pipe=True)
    assert (group.status, "cannot write to" in group.reason) == ("refused", True)


# -- RAS ---------------------------------------------------------------------------------------------------------------


def a_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def a_ras_node(node, tmp_path, answer, *more):
    port = a_port()
    node.rank("ras", port, a_file(tmp_path, answer), *more, env={"NCCL_RAS_ADDR": f"localhost:{port}"})


def test_ras_query_returns_counts_for_all_ranks_of_the_job(node, tmp_path):
    answer = a_ras_answer([a_ras_rank(0, pid="MYPID"), a_ras_rank(1, count=6)]).replace(b'"MYPID"', b"MYPID")
    a_ras_node(node, tmp_path, answer)
    lines = of(node.read(), "PgStatus", "ras")
    assert [(line.group_rank, line.op_counts["AllReduce"], line.rank) for line in lines] == [(0, 7, None), (1, 6, None)]
    assert lines[0].pid == node.processes[0].pid


def test_ras_reply_of_another_job_is_rejected(node, tmp_path):
    a_ras_node(node, tmp_path, a_ras_answer([a_ras_rank(0)]))
    [line] = node.read()
    assert (line.status, line.reason.endswith("responds for another job")) == ("elsewhere", True)


def test_ras_without_json_support_is_read_as_text(node, tmp_path):
    a_ras_node(node, tmp_path, RAS_TEXT.replace(b"process 202", b"process MYPID"), "nojson")
    lines = of(node.read(), "PgStatus", "ras")
    assert [(line.group_rank, line.op_counts) for line in lines] == [(3, {}), (2, {"AllReduce": 11})]
    assert "3 ranks are at 12" in lines[0].reason


def test_malformed_json_of_nccl_2_28_9_ras_is_parsed(node, tmp_path):
    answer = a_ras_answer([a_ras_rank(0, pid="MYPID")], [a_missing_ras_rank(1, dead=True)], "2.28.9")
    a_ras_node(node, tmp_path, answer.replace(b'"MYPID"', b"MYPID"))
    assert [one.group_state for one in node.read()] == ["running", "considered_dead"]


def test_disabled_ras_is_not_queried(node, tmp_path):
    port = a_port()
    answer = a_file(tmp_path, a_ras_answer([a_ras_rank(0)]))
    node.rank("ras", port, answer, env={"NCCL_RAS_ADDR": f"localhost:{port}", "NCCL_RAS_ENABLE": "0"})
    assert node.read() == []


def test_the_tables_of_sockets_are_not_read_for_a_rank_without_a_gpu(node, monkeypatch):
    node.rank()
    monkeypatch.setattr(sockets, "listeners_at", lambda *_: pytest.fail("10 ms on a busy node"))
    assert node.read() == []


def test_only_seven_of_64_nodes_query_ras():
    def asks(first, count=8):
        ranks = [RankRef(dict.fromkeys(RankRef.__slots__, 0) | {"job": "j", "rank": first + at}) for at in range(count)]
        return collect._queries_ras(ranks[0], ranks)

    assert [node for node in range(64) if asks(8 * node)] == [0, 1, 2, 4, 8, 16, 32]


# -- logs --------------------------------------------------------------------------------------------------------------


def test_nccl_log_is_read_from_the_environment_or_configured_path(node, tmp_path):
    host = os.uname().nodename
    process = node.rank(env={"NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p.log")})
    text = NCCL_LOG.replace("node1", host).replace("4711", str(process.pid))
    (tmp_path / f"nccl.{host}.{process.pid}.log").write_text(text)
    by_environment = of(node.read(), "Collective", "nccl_log")
    assert [one.collective_seq_id for one in by_environment] == [9, 10, None]
    (tmp_path / f"nccl.{host}.{process.pid}.log").rename(tmp_path / "elsewhere.log")
    assert node.read() == []
    by_configuration = of(node.read(nccl_logs=[str(tmp_path / "else*.log")]), "Collective", "nccl_log")
    assert [one.profiling_name for one in by_configuration] == [one.profiling_name for one in by_environment]


def test_inspector_log_is_read_from_the_environment_path(node, tmp_path):
    process = node.rank(env={"NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": str(tmp_path)})
    line = an_inspector_line(3).replace("node0", os.uname().nodename).replace("4711", str(process.pid))
    (tmp_path / f"host-pid{process.pid}.log").write_text(line + "\n")
    [entry] = node.read()
    assert (entry.source, entry.duration_ms, entry.rank) == ("inspector", 0.5, 0)


def test_a_log_of_another_user_is_not_read_for_a_rank(node, tmp_path):
    if os.geteuid():
        pytest.skip("only root can create a file of another user")
    node.rank(env={"NCCL_DEBUG_FILE": str(tmp_path / "log")})
    (tmp_path / "log").write_text(NCCL_LOG)
    os.chown(tmp_path / "log", 12345, 12345)
    [status] = node.read()
    assert (status.source, status.status) == ("nccl_log", "unreadable")


def test_long_log_is_read_at_its_beginning_and_end(node, tmp_path):
    process = node.rank(env={"NCCL_DEBUG_FILE": str(tmp_path / "log")})
    text = NCCL_LOG.replace("node1", os.uname().nodename).replace("4711", str(process.pid)).splitlines()
    (tmp_path / "log").write_text("\n".join([text[0], *["step 1 loss 2.0"] * 200_000, text[1]]) + "\n")
    [entry] = of(node.read(), "Collective")
    assert entry.process_group == ("0x8c1f", "")


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_oversized_worker_server_reply_is_rejected(node, tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder_sources, "MAX_BYTES", 1000)
    node.rank("worker", tmp_path / "w.sock", a_file(tmp_path, a_dump([waiting(seq) for seq in range(1, 50)])))
    [group] = node.read()
    assert (group.status, "exceeds" in group.reason) == ("unreadable", True)


def test_rank_that_exits_before_the_read_gives_no_records(node):
    process = node.rank()
    refs = list(node.refs())
    process.kill()
    process.wait()
    facts = []
    reader = collect.CollectivesReader(
        collect.CollectivesRequest({}), "c", refs, ProcFs(), facts.extend, time.monotonic() + 5
    )
    reader.start()
    reader.join()
    assert facts == []


def test_addresses_in_kernel_socket_tables_are_parsed():
    little = sys.byteorder == "little"
    assert net_tables._address(b"0100007F:1F90" if little else b"7F000001:1F90") == ("127.0.0.1", 8080)
    assert net_tables._address(b"0" * 32 + b":0000") == ("::", 0)
    mapped = b"0000000000000000FFFF00000100007F:0050" if little else b"00000000000000000000FFFF7F000001:0050"
    assert net_tables._address(mapped) == ("127.0.0.1", 80), "IPv4 in IPv6, as a dual-stack listener has it"
