"""Import of folders with collective dumps and logs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comms.documents import NCCL_LOG, RAS_TEXT, RECORDED, a_dump, a_ras_answer, a_ras_rank, an_inspector_line, waiting
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole.analysis.collectives.communication import communication
from gconsole.monitor.imports.collectives import import_files, import_folder, rank_of, source_of
from gconsole.records import Collective, PgStatus


def faults(got, job):
    entries = [record for record in got.records if isinstance(record, Collective)]
    statuses = [record for record in got.records if isinstance(record, PgStatus)]
    return communication(entries, statuses, (job, 0)).faults


def test_a_folder_of_dumps_names_the_missing_rank(tmp_path):
    for rank in range(3):
        shutil.copyfile(RECORDED / f"missing.{rank}.pickle", tmp_path / f"nccl_trace_rank_{rank}")
    (tmp_path / "notes.txt").write_text("see you\n")
    (tmp_path / "stacks.json").write_text("[]")
    got = import_folder(tmp_path, "j")
    assert got.problems == []
    assert [path.name for path in got.read] == [f"nccl_trace_rank_{rank}" for rank in range(3)]
    [fault] = faults(got, "j")
    assert (fault.kind, fault.ranks) == ("missing_rank", (1,))


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_12", 12), ("comm_lib_trace_rank_0", 0), ("missing.3.json", 3), ("node07_rank3.pickle", 3),
     ("host2-dump-5", 5), ("dump.json", None), ("Rank-9.json", 9)],
)  # fmt: skip
def test_rank_is_read_from_the_file_name(tmp_path, name, rank):
    assert rank_of(tmp_path / name) == rank


def test_dump_without_a_rank_in_its_name_is_reported(tmp_path):
    (tmp_path / "dump.json").write_text(json.dumps(a_dump([waiting(1)])))
    got = import_folder(tmp_path)
    assert "no rank in its file name" in str(got.problems[0])
    assert str(tmp_path / "dump.json") in str(got.problems[0])


def test_source_is_detected_from_the_file_content():
    assert source_of(json.dumps(a_dump([])).encode()) == "fr_dump"
    assert source_of((RECORDED / "missing.0.pickle").read_bytes()) == "fr_dump"
    assert source_of(a_ras_answer([a_ras_rank(0)])) == "ras"
    assert source_of(RAS_TEXT) == "ras"
    assert source_of(NCCL_LOG.encode()) == "nccl_log"
    assert source_of(an_inspector_line(1).encode()) == "inspector"
    assert source_of(b"hello") is None
    assert source_of(b"[]") is None
    assert source_of(b"\x80\x04N.") is None


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    shutil.copyfile(RECORDED / "missing.0.pickle", tmp_path / "rank_0")
    (tmp_path / "rank_1").write_bytes((RECORDED / "missing.1.pickle").read_bytes()[:-40])
    (tmp_path / "ras.json").write_text('{"communicators": ')
    got = import_folder(tmp_path)
    assert sorted(str(problem).split(":")[0].rsplit("/", 1)[1] for problem in got.problems) == ["rank_1", "ras.json"]
    assert any(isinstance(record, Collective) and record.rank == 0 for record in got.records)


def test_logs_use_the_rank_number_in_the_largest_communicator(tmp_path):
    (tmp_path / "nccl.log").write_text(NCCL_LOG)
    (tmp_path / "inspector.log").write_text("\n".join(an_inspector_line(sn, rank=1) for sn in (1, 2)))
    got = import_folder(tmp_path, "j")
    by_source = {
        record.source: record.rank for record in got.records if isinstance(record, Collective) and record.process_group
    }
    assert by_source == {"nccl_log": 0, "inspector": 1}
    assert "without Init lines in it" in str(got.problems[0])


@pytest.mark.slow
@given(st.sampled_from(sorted(RECORDED.glob("*.*"))), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_corrupt_file_yields_records_or_a_problem_that_names_it(tmp_path_factory, path, data):
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    broken = tmp_path_factory.mktemp("broken") / "rank_0"
    broken.write_bytes(bytes(content))
    got = import_files([broken], "j")
    faults(got, "j")
    assert all(str(broken) in str(problem) for problem in got.problems)


@pytest.mark.slow
def test_diagnose_command_reads_a_folder_of_flight_recorder_dumps(tmp_path):
    for rank in range(3):
        shutil.copyfile(RECORDED / f"missing.{rank}.pickle", tmp_path / f"nccl_trace_rank_{rank}")
    program = Path(sys.executable).with_name("gconsole")
    done = subprocess.run([program, "diagnose", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[0,2] wait in all_reduce #3 of group default_pg (0), which [1] has not entered" in done.stdout
    assert done.stderr == ""
