"""Folders of logs: layouts, bounds, and files that are not logs."""

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli.main import gconsole
from gconsole.monitor.imports import outputs
from gconsole.monitor.imports.outputs import ImportedOutputs, import_outputs

OWN = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 20, in <module>
    main()
  File "/home/u/train.py", line 12, in main
    raise ValueError("bad label")
ValueError: bad label
"""
CLOSED = OWN.replace("ValueError: bad label", "RuntimeError: gloo pair.cc: Connection closed by peer [10.0.0.1]:7")


def imported(folder: Path) -> ImportedOutputs:
    return import_outputs(folder, "job")


def ranks(folder: Path) -> list[tuple[int | None, str | None]]:
    [evidence] = imported(folder).attempts
    return sorted(((end.rank, end.node) for end in evidence.ranks), key=str)


def write(folder: Path, *names: str, text: str = "step 1\n") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank0.log", "rank1.log"], [0, 1]),
        (["log_rank-3.txt", "log_rank-12.txt"], [3, 12]),
        (["123_0.out", "123_1.out", "123_0.err", "123_1.err"], [0, 1]),
        (["3.log", "4.log"], [3, 4]),
        (["job-worker-0-abc1x.log", "job-worker-1-q9zzz.log"], [0, 1]),
        (["job-master-0.log", "job-worker-0.log", "job-worker-1.log"], [0, 1, 2]),
        (["slurm-4242.out"], []),
        (["node1.log", "node2.log"], []),
        (["run/attempt_0/0/stderr.log", "run/attempt_0/1/stderr.log", "run/attempt_0/1/stdout.log"], [0, 1]),
    ],
)  # fmt: skip
def test_ranks_are_taken_from_names(names: list[str], expected: list[int], tmp_path: Path) -> None:
    write(tmp_path, *names)
    assert sorted(rank for rank, _ in ranks(tmp_path) if rank is not None) == expected


def test_local_ranks_of_several_nodes_are_no_ranks_without_prefixes(tmp_path: Path) -> None:
    write(tmp_path, "a/rank0.log", "a/rank1.log", "b/rank0.log", "b/rank1.log")
    assert ranks(tmp_path) == [(None, "a"), (None, "a"), (None, "b"), (None, "b")]


def test_prefix_of_one_rank_numbers_the_others_of_its_node(tmp_path: Path) -> None:
    write(tmp_path, *(f"{run}/attempt_0/{local}/stderr.log" for run in "ab" for local in (0, 1)))
    write(tmp_path, "b/attempt_0/1/stderr.log", text="".join(f"[rank3]: {line}\n" for line in CLOSED.splitlines()))
    assert ranks(tmp_path) == [(2, "b"), (3, "b"), (None, "a"), (None, "a")]


def test_each_attempt_of_torchrun_is_evidence_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "run/attempt_0/0/stderr.log", "run/attempt_1/0/stderr.log", "run/attempt_10/0/stderr.log")
    assert [evidence.attempt for evidence in imported(tmp_path).attempts] == [0, 1, 10]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "rank1.log.gz").write_bytes(gzip.compress(OWN.encode()))
    write(tmp_path, "rank0.log", text=CLOSED)
    [evidence] = imported(tmp_path).attempts
    assert [(end.rank, end.outputs[0].text) for end in evidence.ranks] == [(0, CLOSED), (1, OWN)]


def test_damaged_compressed_file_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank1.log.gz").write_bytes(gzip.compress(OWN.encode())[:-12])
    write(tmp_path, "rank0.log")
    result = imported(tmp_path)
    assert (result.read, [name for name, _ in result.problems]) == (("rank0.log",), ["rank1.log.gz"])


def test_compression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_UNPACKED", 2 << 20)
    (tmp_path / "rank1.log.gz").write_bytes(gzip.compress(b"\n" * (8 << 20)))
    assert imported(tmp_path).problems == (("rank1.log.gz", "more than 1 GiB uncompressed"),)


def test_of_a_long_file_the_beginning_and_the_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "TAIL_BYTES", 100_000)
    lines = [f"line {number}\n" for number in range(200_000)]
    write(tmp_path, "slurm.out", text="".join(lines) + OWN)
    [evidence] = imported(tmp_path).attempts
    text = evidence.launchers[0].output.text or ""
    assert text.startswith("line 0\n") and text.endswith(OWN) and "bytes left out]" in text
    assert len(text) < 400_000


def test_links_out_of_the_folder_and_files_that_are_not_regular_are_not_read(tmp_path: Path) -> None:
    folder, secret = tmp_path / "logs", tmp_path / "secret.log"
    secret.write_text(OWN)
    write(folder, "rank0.log")
    (folder / "rank1.log").symlink_to(secret)
    (folder / "rank2.log").symlink_to("/dev/zero")
    os.mkfifo(folder / "rank3.log")
    assert imported(folder).read == ("rank0.log",)


def test_binary_files_are_not_logs(tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_bytes(os.urandom(4_096))
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x04" + bytes(range(256)) * 8)
    write(tmp_path, "config.yaml", "train.py", "model.pt")
    assert imported(tmp_path).read == ()


def test_error_file_of_torchrun_is_an_uncaught_exception(tmp_path: Path) -> None:
    message = {"message": "ValueError: bad label", "extraInfo": {"py_callstack": OWN, "timestamp": "1772359200"}}
    write(tmp_path, "run/attempt_0/0/error.json", text=json.dumps({"message": message}))
    write(tmp_path, "run/attempt_0/0/stderr.log", "run/attempt_0/1/stderr.log", text=CLOSED)
    done = CliRunner().invoke(gconsole, ["diagnose", str(tmp_path)])
    assert "rank 0 raised an exception: ValueError: bad label at train.py:12 main" in done.output


@pytest.mark.parametrize(
    ("options", "code"),
    [([], 1), (["--fail-on", "exception"], 1), (["--fail-on", "gpu_xid"], 0), (["--fail-on", "error"], 1)],
)
def test_crash_in_a_folder_sets_the_exit_code(options: list[str], code: int, tmp_path: Path) -> None:
    write(tmp_path, "rank0.log", text=CLOSED)
    write(tmp_path, "rank1.log", text=OWN)
    report = tmp_path.parent / f"{tmp_path.name}.json"
    done = CliRunner().invoke(gconsole, ["diagnose", str(tmp_path), "-o", str(report), *options], standalone_mode=False)
    assert done.return_value == code, done.output
    [crash] = json.loads(report.read_text())["crashes"]
    assert (crash["kind"], [culprit["rank"] for culprit in crash["culprits"]]) == ("exception", [1])
    assert crash["first_cause"]["failure"]["site"]["line"] == 12
    [finding] = json.loads(report.read_text())["findings"]
    assert (finding["id"], finding["culprits"]) == ("exception", ["rank 1"])


def test_logs_without_a_failure_exit_with_0_and_say_so(tmp_path: Path) -> None:
    write(tmp_path, "rank0.log", "rank1.log")
    done = CliRunner().invoke(gconsole, ["diagnose", str(tmp_path)], standalone_mode=False)
    assert done.return_value == 0 and "no failure in 2 outputs" in done.output


def test_secrets_and_control_characters_of_logs_are_not_printed(tmp_path: Path) -> None:
    write(tmp_path, "rank0.log", text=OWN.replace("bad label", "api_key=sk-abcdefghijklmnop1234 \x1b]0;x\x07\u202e"))
    done = CliRunner().invoke(gconsole, ["diagnose", str(tmp_path), "-o", str(tmp_path.parent / "r.json")])
    assert "sk-abc" not in done.output and "\x1b" not in done.output and "\u202e" not in done.output
    assert "sk-abc" not in (tmp_path.parent / "r.json").read_text()
