"""The process that answers questions for a console with a screen: `python -m gconsole.session.query.worker`.

A line of JSON on stdin is a question, one on stdout says what became of it; the rows of the answer lie in the folder
that the question names, as Arrow. It ends with its console: when stdin does.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ...text import format
from .limits import bounded_memory

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from .engine import Database
    from .sources import Tables

#: An answer is held by the console, too.
MOST_ANSWER_BYTES: Final = 64 << 20
ANSWER: Final = "answer.arrow"
_TOO_MUCH: Final = "the answer needs"
_LESS: Final = "ask for fewer columns or rows"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, of a session or of tables that lie in the folder as `TABLE.arrow`; without SQL, for all names."""

    folder: str
    sql: str | None = None
    session: str | None = None
    limit: int | None = None
    deadline_s: float = 60.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a question."""

    trouble: str = ""
    kind: Literal["", "refused", "error"] = ""
    truncated: bool = False
    took_s: float = 0.0
    damage: tuple[str, ...] = ()
    names: dict[str, tuple[str, ...]] | None = None


def main() -> None:
    """Answer until stdin ends."""
    questions: SimpleQueue[Question] = SimpleQueue()
    threading.Thread(target=_read, args=(questions,), daemon=True).start()
    with bounded_memory():
        while True:
            told = answer(questions.get())
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
            sys.stdout.buffer.flush()


def _read(questions: SimpleQueue[Question]) -> None:
    for line in sys.stdin.buffer:
        questions.put(msgspec.json.decode(line, type=Question))
    os._exit(0)  # the console is gone, whatever is being answered


def answer(question: Question) -> Told:
    """Answer one question; its rows are in the folder then."""
    from ..format.layout import SessionError
    from ..ndjson import RecordFileError
    from .engine import Database, QueryError, QueryRefused
    from .sources import RecordedSource

    folder = Path(question.folder)
    try:
        if question.session is None:
            return _answer(question, Database(_Folder(folder)))
        with RecordedSource(Path(question.session), folder) as source:
            told = _answer(question, Database(source, source.scratch))
            return msgspec.structs.replace(told, damage=tuple(map(str, source.damage)))
    except QueryRefused as error:
        return Told(trouble=str(error), kind="refused")
    except MemoryError:
        return Told(trouble=f"{_TOO_MUCH} more memory than it may have; {_LESS}", kind="error")
    except (QueryError, SessionError, RecordFileError, OSError) as error:
        return Told(trouble=str(error), kind="error")


def _answer(question: Question, database: Database) -> Told:
    """Raises QueryError, and what the source raises."""
    try:
        if question.sql is None:
            return Told(names=database.names())
        found = database.ask(question.sql, limit=question.limit, deadline_s=question.deadline_s)
        if found.rows.nbytes > MOST_ANSWER_BYTES:
            size = f"{format.size(found.rows.nbytes)} of room on a screen"
            return Told(trouble=f"{_TOO_MUCH} {size}; {_LESS}, or a file: gconsole query", kind="error")
        _write(found.rows, Path(question.folder) / ANSWER)
        return Told(truncated=found.truncated, took_s=found.took_s)
    finally:
        database.close()


class _Folder:
    """Tables that a console has put into a folder, a file each: a source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tables(self, wanted: Collection[str]) -> Tables:
        import pyarrow as pa

        from .sources import Tables

        found = {}
        for table in wanted:
            path = self._folder / f"{table}.arrow"
            if path.exists():
                with pa.memory_map(str(path)) as mapped:
                    found[table] = pa.ipc.open_file(mapped).read_all()
        return Tables(columns=found)


def put(table: str, rows: pa.Table, folder: Path) -> None:
    """Put a table where such a source looks for it. Raises OSError."""
    _write(rows, folder / f"{table}.arrow")


def _write(rows: pa.Table, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, rows.schema) as file:
        file.write_table(rows)


if __name__ == "__main__":
    main()
