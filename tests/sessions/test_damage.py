"""Sessions damaged at random places: every answer is the true one, or the damage is reported; none is silently wrong.

`python tests/sessions/test_damage.py [PLACES] [SEED]` prints how many damages were reported by which question.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from session_builders import a_job, gpu

from gconsole.records import Mark, encode
from gconsole.session.format import index, reader, writer
from gconsole.session.format.layout import Session, SessionError
from gconsole.session.format.manifest import MANIFEST
from gconsole.session.format.reader import RecordFilter
from gconsole.session.format.writer import SegmentWriter
from gconsole.session.manage.catalog import entry_of
from gconsole.session.manage.compact import compact, drop_segments
from gconsole.session.query.engine import Database
from gconsole.session.query.limits import QueryError
from gconsole.session.query.sources import RecordedSource
from gconsole.session.record import recovery
from gconsole.session.replay import Replay

PLACES = {"quick": 5, "test": 40, "full": 1000}[os.environ.get("TEST_TIER", "test")]
#: In memory: every damage is done to a fresh copy.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: Every session has Parquet of each segment; these segments are deleted.
LAYOUTS = {"segments": (), "some segments": (1, 3), "Parquet": (1, 2, 3, 4, 5, 6)}
QUERIES = (
    "SELECT count(*), sum(util_pct), sum(power_w), sum(seq) FROM gpu",
    "SELECT rank, count(*), avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank",
    "SELECT count(*), max(text) FROM mark",
)
REFUSED = (SessionError, QueryError, OSError)


def build(folder: Path, layout: str, *, first: int = 1) -> Session:
    """A closed session of several segments and kinds, with an index, from records that count up from `first`."""
    job = a_job(ranks=4, ticks=20)
    for record in job:
        record.seq += first
    metrics = [gpu(first + n, f"GPU-{n % 4}", f"n{n % 4 // 2}", at=30 + n // 4, util_pct=float(n % 101), power_w=n / 8)
               for n in range(600)]  # fmt: skip
    marks = [Mark(text=f"mark {n}", agent="c", seq=first + n, t=gpu(1, at=n).t, rx=gpu(1, at=n).rx) for n in range(20)]
    session = Session(folder / "night")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "FRAME_RECORDS", 40)
        patch.setattr(writer, "SegmentWriter", lambda session: SegmentWriter(session, 6_000))
        writer.write_session(session, sorted([*job, *metrics, *marks], key=lambda record: record.rx))
    compact(session)
    index.build_index(session)
    for number in LAYOUTS[layout]:
        session.segment(number).unlink(missing_ok=True)
    return session


class Answers:
    """What a session answers to each question, and whether it said that something is missing."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def questions(self) -> dict[str, Callable[[], tuple[object, bool]]]:
        """Name → function that returns the answer and whether a loss was reported; it may refuse instead."""
        return {
            "session.json": self._meta, "records": self._records, "lenient": self._lenient, "replay": self._replay,
            **{f"query {number}": self._query(sql) for number, sql in enumerate(QUERIES)},
        }  # fmt: skip

    def _meta(self) -> tuple[object, bool]:
        """What `sessions list` and `show` print."""
        entry, meta = entry_of(self.session), self.session.read()
        return (meta.name, meta.records, meta.counts, meta.span, meta.agents), entry.status in ("damaged", "unreadable")

    def _records(self) -> tuple[object, bool]:
        return sorted(map(encode, reader.records(self.session.path))), False

    def _lenient(self) -> tuple[object, bool]:
        damages: list[reader.Damage] = []
        records = sorted(map(encode, reader.lenient(self.session.path, damages.append)))
        return records, any(damage.is_loss for damage in damages)

    def _replay(self) -> tuple[object, bool]:
        """The state at an instant, through the index, and the records after it."""
        damages: list[reader.Damage] = []
        at = gpu(1, at=60).rx
        indexed = index.open_index(self.session)
        marks = sorted(encode(record) for record in indexed.events(frozenset({"mark"}), damages.append))
        changes = sorted({encode(record) for record in _last(indexed.changes(at, damages.append))})
        after = sorted(map(encode, indexed.records(damages.append, RecordFilter(from_rx=at))))
        replay = Replay(self.session)
        damages += replay.damages
        gpus = sorted((key, str(now)) for key, now in replay.store.gpus.items())
        return (marks, changes, after, gpus, replay.begin, replay.end), any(damage.is_loss for damage in damages)

    def _query(self, sql: str) -> Callable[[], tuple[object, bool]]:
        def ask() -> tuple[object, bool]:
            with RecordedSource(self.session.path) as source:
                database = Database(source, source.scratch)
                try:
                    rows = database.query(sql).rows
                finally:
                    database.close()
            return rows, any(damage.is_loss for damage in source.damage)

        return ask


def _last(records: Iterator[object]) -> list[object]:
    """The last of all records of an entity: an index keeps fewer of those that are replaced than segments do."""
    return index._last_of_each(list(records))


def damage(session: Session, other: Session, chance: random.Random) -> str:
    """Damage one file of a session at a random place; return what was done."""
    files = [path for path in sorted(session.path.rglob("*")) if path.is_file() and path.name != "lock"]
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        kind = path.name if path.suffix == ".json" else f"{path.parts[-2][:4]} {path.suffix}"
        by_kind.setdefault(kind, []).append(path)
    path = chance.choice(by_kind[chance.choice(sorted(by_kind))])
    data = bytearray(path.read_bytes())
    how = chance.choice(("flip", "flip", "zero", "cut", "empty", "delete", "swap", "exchange", "older"))
    place = chance.randrange(len(data)) if data else 0
    match how:
        case "flip" if data:
            data[place] ^= 1 << chance.randrange(8)
        case "zero":
            length = chance.choice((1, 16, 512, 4096))
            data[place : place + length] = bytes(len(data[place : place + length]))
        case "cut":
            frames = [item.offset for item in reader.zstd_frames.scan(path)] if path.suffix == ".zst" else []
            del data[chance.choice([place, *frames[1:]]) :]
        case "empty":
            data.clear()
        case "delete":
            path.unlink()
            return f"{how} {path.name}"
        case "swap":
            second = chance.choice(files)
            path.write_bytes(second.read_bytes())
            second.write_bytes(data)
            return f"{how} {path.name} and {second.name}"
        case "exchange":
            others = [each for each in sorted(other.path.rglob("*")) if each.is_file() and each.suffix == path.suffix]
            same = [each for each in others if each.relative_to(other.path) == path.relative_to(session.path)]
            data = bytearray(chance.choice(same or others or [path]).read_bytes())
        case "older":
            data += data[: chance.randrange(len(data) + 1)]
    path.write_bytes(data)
    return f"{how} {path.relative_to(session.path)} at {place}"


def check(session: Session, truth: dict[str, object], done: str, counted: Counter[str]) -> None:
    """Ask everything; raises AssertionError for an answer that is wrong and not reported."""
    wrong = []
    for name, ask in Answers(session).questions().items():
        try:
            answer, is_reported = ask()
        except REFUSED as error:
            counted[f"{name}: refused"] += 1
            assert str(error), done
            continue
        if answer == truth[name]:
            counted[f"{name}: right"] += 1
        elif is_reported:
            counted[f"{name}: rest, with a report"] += 1
        else:
            wrong.append(name)
    assert not wrong, f"{done}: silently wrong: {', '.join(wrong)}"


def check_verify(session: Session, sound: Session, done: str, counted: Counter[str]) -> None:
    """Every damaged byte is reported, except in the index, which is derived: without it segments are read.

    Without compacted.json a session is not compacted: its segments are everything, or are reported missing.
    """
    derived = {"index"} if (session.parquet_folder / MANIFEST).exists() else {"index", "parquet"}

    def content(each: Session) -> dict[Path, bytes]:
        files = (path for path in each.path.rglob("*") if path.is_file())
        files = (path for path in files if path.relative_to(each.path).parts[0] not in derived)
        return {path.relative_to(each.path): data for path in files if (data := path.read_bytes())}

    now, before = content(session), content(sound)
    changed = {path for path in now.keys() | before.keys() if now.get(path) != before.get(path)}
    if "parquet" not in derived:  # a deleted segment has its Parquet
        changed = {path for path in changed if path.parts[0] != "segments" or (session.path / path).exists()}
    is_damaged = bool(changed)
    counted["files damaged, without the index"] += is_damaged
    try:
        is_sound = recovery.verify(session).is_sound
    except REFUSED:
        is_sound = False
    counted["verify: sound" if is_sound else "verify: damage"] += 1
    is_lost = lacks_segments(session) and "parquet" in derived
    assert is_sound != (is_damaged or is_lost), f"{done}: verify says {'sound' if is_sound else 'damage'}"


def lacks_segments(session: Session) -> bool:
    """Whether segments that were sealed are deleted."""
    try:
        return any(not session.segment(seal.number).exists() for seal in session.read().seals)
    except SessionError:
        return True


def check_drop(session: Session, truth: dict[str, object], done: str, counted: Counter[str]) -> None:
    """Compaction and the deletion of segments never lose what could be read before."""
    before: list[reader.Damage] = []
    try:
        records = sorted(map(encode, reader.lenient(session.path, before.append)))
        compact(session)
        drop_segments(session)
    except REFUSED:
        counted["drop: refused"] += 1
        return
    assert sorted(map(encode, reader.lenient(session.path, before.append))) == records, f"{done}: dropped records"
    counted["drop: all records kept"] += 1


def damage_and_check(places: int, seed: int, layout: str) -> Counter[str]:
    """Damage fresh copies of a session, one place each, and check all answers."""
    chance, counted = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="gconsole-damage-", dir=MEMORY) as scratch:
        sound = build(Path(scratch, "sound"), layout)
        other = build(Path(scratch, "other"), layout, first=10_001)
        truth = {name: ask()[0] for name, ask in Answers(sound).questions().items()}
        assert len(sound.segments()) + len(LAYOUTS[layout]) >= 3 and len(truth["records"]) > 700
        for number in range(places):
            copy = Session(Path(scratch, f"copy-{number}", "night"))
            shutil.copytree(sound.path, copy.path)
            done = f"seed {seed}, number {number}, {layout}: {damage(copy, other, chance)}"
            check(copy, truth, done, counted)
            check_verify(copy, sound, done, counted)
            check_drop(copy, truth, done, counted)
            shutil.rmtree(copy.path.parent)
    return counted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_answer_of_a_damaged_session_is_silently_wrong(layout: str) -> None:
    counted = damage_and_check(PLACES // len(LAYOUTS), seed=len(layout), layout=layout)

    refused = sum(number for name, number in counted.items() if name.endswith(("refused", "report")))
    assert refused > PLACES // len(LAYOUTS), "most damages are noticed by some question"


def main() -> None:
    """Damage as many places as the arguments say, and print what each question answered."""
    places, seed = ([*map(int, sys.argv[1:]), 1000, 1][slice(0, 2)] if len(sys.argv) > 2 else
                    [int((sys.argv[1:] or ["1000"])[0]), 1])  # fmt: skip
    total = Counter[str]()
    for layout in LAYOUTS:
        total += damage_and_check(-(-places // len(LAYOUTS)), seed, layout)
    for name, number in sorted(total.items()):
        print(f"{number:6d}  {name}")


if __name__ == "__main__":
    main()
