"""`gconsole collectives`: the traffic matrix of a recording as text, of any number of ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner

from gconsole.cli.collectives import collectives
from gconsole.records import Collective

RANKS = 40


def recording(folder: Path) -> Path:
    """A ring of sends, and an all_reduce."""
    common = {"capture": "c", "source": "fr_dump", "job": "llama", "process_group": ("0", "default_pg"), "node": "n"}
    records = []
    for rank in range(RANKS):
        own = {**common, "rank": rank, "group_size": RANKS, "input_dtypes": ("Byte",), "retired": True}
        records += [
            Collective(profiling_name=f"nccl:send {rank}->{(rank + 1) % RANKS}", is_p2p=True, input_numel=1024, **own),
            Collective(profiling_name="nccl:all_reduce", collective_seq_id=1, input_numel=64, **own),
        ]
    path = folder / "records.ndjson"
    path.write_bytes(b"\n".join(msgspec.json.encode(record) for record in records) + b"\n")
    return path


def test_matrix_has_a_row_and_a_column_for_each_rank(tmp_path: Path) -> None:
    result = CliRunner().invoke(collectives, ["--from", str(recording(tmp_path)), "--matrix"], standalone_mode=False)

    lines = result.output.splitlines()
    assert lines[0] == "collectives  llama"
    assert f"{RANKS} rank pairs" in lines[1]
    rows = [line.split() for line in lines if len(line.split()) == RANKS + 1][1:]  # without the header
    assert [row[0] for row in rows] == [str(rank) for rank in range(RANKS)]
    assert [row.index("1.0K") for row in rows] == [1 + (rank + 1) % RANKS for rank in range(RANKS)]
    assert "all_reduce, which names no pair of ranks" in result.output


def test_recording_without_collectives_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "empty.ndjson"
    path.touch()

    result = CliRunner().invoke(collectives, ["--from", str(path)], standalone_mode=False)

    assert "no collective data" in result.output
    assert result.return_value in (3, 4)
