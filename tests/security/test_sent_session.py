"""A session from an untrusted sender with malicious Parquet: each command ends with an error, in bounded memory."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import GCONSOLE

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from session_builders import a_job, a_session

from gconsole.session.format import parquet_reader, reader
from gconsole.session.format.layout import Session, SessionError, write_checked
from gconsole.session.format.manifest import MANIFEST, Manifest, pieces
from gconsole.session.manage.compact import compact

GIB = 1 << 30
#: Larger than any honest result; input that expands beyond it must be rejected.
MOST_DATA = 1 * GIB
TIMEOUT_S = 60
COMMANDS: dict[str, Callable[[Path], list[object]]] = {
    "query": lambda path: ["query", path, "SELECT count(*), max(length(uuid)), max(util_pct) FROM gpu"],
    "verify": lambda path: ["sessions", "verify", path],
}


class SentSession:
    """A session without segments, with one Parquet file from an untrusted sender."""

    def __init__(self, folder: Path, sound: Session) -> None:
        self.session = Session(folder / "sent")
        shutil.copytree(sound.path, self.session.path)
        [self.file] = (self.session.parquet_folder / "gpu").rglob("*.parquet")
        self.table = pq.ParquetFile(self.file).read()

    def put(self, table: pa.Table, **how: Any) -> None:
        pq.write_table(table, self.file, compression="zstd", **how)
        self.set_metadata(rows=len(table))

    def set_metadata(self, **changes: Any) -> None:
        """Change the compaction metadata of the file."""
        path = self.session.parquet_folder / MANIFEST
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest() if self.file.is_file() else ""
        parts = [
            msgspec.structs.replace(part, digest=digest, **changes) if part.table == "gpu" else part
            for part in manifest.parts
        ]
        write_checked(path, msgspec.structs.replace(manifest, parts=tuple(parts)))

    def move(self, name: str) -> None:
        """Move the file to another name and update the compaction metadata."""
        place = self.session.parquet_folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        self.file.rename(place)
        self.set_metadata(path=name)


def with_column(sent: SentSession, name: str, values: pa.Array) -> None:
    sent.put(sent.table.set_column(sent.table.column_names.index(name), name, values), store_schema=False)


def repeated_text(sent: SentSession) -> None:
    """20,000 rows with the same 1 MiB text: a file of a few kB."""
    rows = 20_000
    text = pa.DictionaryArray.from_arrays(pa.repeat(0, rows).cast(pa.int32()), pa.array(["x" * (1 << 20)]))
    columns = {name: pa.repeat(sent.table[name][0], rows) for name in sent.table.column_names}
    sent.put(pa.table({**columns, "uuid": text}), store_schema=False, dictionary_pagesize_limit=GIB)


def many_columns(sent: SentSession) -> None:
    more = {f"c{number}": pa.nulls(len(sent.table), pa.int8()) for number in range(5_000)}
    sent.put(pa.table({**dict(zip(sent.table.column_names, sent.table.columns, strict=True)), **more}))


def nested_lists(sent: SentSession) -> None:
    kind = pa.int8()
    for _ in range(150):
        kind = pa.list_(kind)
    sent.put(sent.table.append_column("deep", pa.nulls(len(sent.table), kind)))


def long_footer(sent: SentSession) -> None:
    sent.file.write_bytes(sent.file.read_bytes()[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def enormous_rows(sent: SentSession) -> None:
    """The footer claims 2^60 rows."""

    def written(number: int) -> bytes:
        number, out = number * 2, b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    data = sent.file.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    before, footer = data[: -8 - length], data[-8 - length : -8]
    assert written(len(sent.table)) in footer
    footer = footer.replace(written(len(sent.table)), written(1 << 60))
    sent.file.write_bytes(before + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    sent.set_metadata(rows=1 << 60)


def invalid_utf8_name(sent: SentSession) -> None:
    sent.put(sent.table, store_schema=False)
    sent.file.write_bytes(sent.file.read_bytes().replace(b"util_pct", b"u\xffil_pct"))


def named_pipe(sent: SentSession) -> None:
    sent.file.unlink()
    os.mkfifo(sent.file)


def symbolic_link(sent: SentSession) -> None:
    outside = sent.session.path.parent / "outside.parquet"
    sent.file.rename(outside)
    sent.file.symlink_to(outside)


#: The two ways of reading Parquet: `stat` and `query` use DuckDB; `export`, a replay and `verify` decode records.
BOTH = ("query", "verify")
#: The manipulation, and which reader must reject it: DuckDB also reads data that are not records.
HARM: dict[str, tuple[Callable[[SentSession], None], tuple[str, ...]]] = {
    "metadata of 20 MB": (lambda sent: sent.put(sent.table.replace_schema_metadata({"x": "y" * (20 << 20)})), BOTH),
    "5,000 columns": (many_columns, BOTH),
    "nested lists": (nested_lists, BOTH),
    "long footer": (long_footer, BOTH),
    "2^60 rows": (enormous_rows, BOTH),
    "text of 20 GB": (repeated_text, ("verify",)),
    "timestamp of type text": (lambda sent: with_column(sent, "rx", pa.array(["x"] * len(sent.table))), ("verify",)),
    "number of type struct": (
        lambda sent: with_column(sent, "util_pct", pa.array([{"a": 1}] * len(sent.table))), ("verify",),
    ),
    "null node": (lambda sent: with_column(sent, "node", pa.nulls(len(sent.table), pa.string())), ("verify",)),
    "name with invalid UTF-8": (invalid_utf8_name, ("verify",)),
    "pipe": (named_pipe, ("query",)),
    "symbolic link": (symbolic_link, ("query",)),
    "SQL in name": (lambda sent: sent.move("gpu/x' UNION SELECT 1 --/part-1-1-0.parquet"), ("query",)),
    "name outside the session": (lambda sent: sent.move("../../part-1-1-0.parquet"), ("query",)),
    "endless segments": (
        lambda sent: sent.set_metadata(path=f"gpu/hour=2026-01-01T00/part-1-{10**12}-0.parquet"), ("verify",),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = a_session(tmp_path_factory.mktemp("sound"), a_job(ticks=50))
    compact(session)
    for path in session.segments():
        path.unlink()
    return session


def run_command(name: str, path: Path) -> tuple[int, str]:
    """Exit status and output of a command that may not use more memory than MOST_DATA."""
    run = fork_server.run(
        [GCONSOLE, *COMMANDS[name](path)], text=True, timeout=TIMEOUT_S, limits={resource.RLIMIT_DATA: MOST_DATA}
    )
    return run.returncode, run.stderr.strip()


@pytest.mark.parametrize("command", BOTH)
def test_commands_accept_an_intact_session_within_the_memory_limit(
    sound: Session, tmp_path: Path, command: str
) -> None:
    """The control: the memory limit does not affect a valid session."""
    assert run_command(command, SentSession(tmp_path, sound).session.path)[0] == 0


@pytest.mark.parametrize("harm", HARM)
def test_harmful_parquet_fails_with_exit_code_2_and_one_line(sound: Session, tmp_path: Path, harm: str) -> None:
    sent = SentSession(tmp_path, sound)
    do, commands = HARM[harm]
    do(sent)
    if (sent.session.parquet_folder / MANIFEST).exists():
        sent.set_metadata()  # a sender can compute checksums
    for command in commands:
        status, output = run_command(command, sent.session.path)
        assert (status, len(output.splitlines())) == (2, 1), (command, output)
        assert "internal error" not in output


def test_compaction_refuses_symlinked_folders_and_changes_nothing_outside(tmp_path: Path) -> None:
    session = a_session(tmp_path, a_job())
    outside = tmp_path / "outside"
    (outside / "gpu").mkdir(parents=True)
    (outside / "thesis.parquet").write_text("three years")
    session.parquet_folder.symlink_to(outside)
    with pytest.raises(SessionError, match="symbolic link"):
        compact(session)
    session.parquet_folder.unlink()
    session.parquet_folder.mkdir()
    (session.parquet_folder / "gpu").symlink_to(outside / "gpu")
    with pytest.raises(SessionError, match="symbolic link"):
        compact(session)
    files = sorted(path.relative_to(outside) for path in outside.rglob("*") if path.is_file())
    assert files == [Path("thesis.parquet")]


def test_rows_without_an_arrival_time_are_reported_as_damaged(sound: Session, tmp_path: Path) -> None:
    sent = SentSession(tmp_path, sound)
    place = sent.table.column_names.index("rx")
    sent.put(sent.table.set_column(place, "rx", pa.nulls(len(sent.table), pa.int64())), store_schema=False)
    [step] = pieces(sent.session)
    with pytest.raises(SessionError, match="rows without rx"):
        list(reader.compacted_span(sent.session, step))


def test_manifest_range_of_a_billion_segments_is_one_piece(tmp_path: Path) -> None:
    session = a_session(tmp_path, a_job())
    compact(session)
    path = session.parquet_folder / MANIFEST
    content = msgspec.json.decode(path.read_bytes(), type=Manifest)
    names = (part.path.replace("000001-000001", "000001-999999999") for part in content.parts)
    wide = tuple(msgspec.structs.replace(part, path=name) for part, name in zip(content.parts, names, strict=True))
    write_checked(path, msgspec.structs.replace(content, parts=wide))
    session.segment(1).unlink()
    [step] = pieces(session)
    assert (step.first, step.last) == (1, 999_999_999)


def test_pipes_links_and_misnamed_files_are_not_listed_as_segments(tmp_path: Path) -> None:
    session = a_session(tmp_path, a_job())
    sound = session.segments()
    os.mkfifo(session.segments_folder / "000002.ndjson.zst")
    (session.segments_folder / "000003.ndjson.zst").symlink_to(sound[0])
    (session.segments_folder / "one.ndjson.zst").write_bytes(b"x")
    assert session.segments() == sound


def test_compacted_files_stay_far_below_the_footer_and_column_limits(sound: Session) -> None:
    for path in sound.parquet_folder.rglob("*.parquet"):
        meta = pq.read_metadata(path)
        assert (
            meta.serialized_size < parquet_reader.MAX_FOOTER_BYTES / 20
            and meta.num_columns < parquet_reader.MAX_COLUMNS / 4
        )


def test_file_that_invalidates_duckdb_does_not_affect_other_sessions(sound: Session, tmp_path: Path) -> None:
    """DuckDB invalidates a database after an internal error: it must be replaced."""
    sent = SentSession(tmp_path, sound)
    crasher = Path(__file__).parents[1] / "fuzz" / "found" / "parquet" / "count-crashes-database"
    shutil.copy(crasher, sent.file)
    sent.set_metadata(rows=39)
    for _ in range(2):
        with pytest.raises(SessionError, match="its Parquet is damaged"):
            list(reader.records(sent.session.path))
        assert list(reader.records(sound.path))
