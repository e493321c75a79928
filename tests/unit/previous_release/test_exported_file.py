"""Import of a session that release 0.1.0 exported as JSON keeps every record."""

from __future__ import annotations

from pathlib import Path

from gconsole.records import encode
from gconsole.session.format import reader
from gconsole.session.manage.catalog import import_file

HERE = Path(__file__).parent


def test_an_exported_session_of_the_previous_release_is_imported_with_every_record(tmp_path: Path) -> None:
    session, _ = import_file(HERE / "exported.json", "again", tmp_path)
    exported = [encode(record) for record in reader.records(session.path)]
    recorded = [encode(record) for record in reader.records(HERE / "session")]
    assert len(exported) > 10
    assert sorted(exported) == sorted(recorded)
