"""Session management: list, rename, merge, annotate, delete, and retention."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from session_files import SECOND, crashed_session, gpus

from gconsole import __version__
from gconsole.cli.sessions import sessions
from gconsole.records import Mark
from gconsole.runtime.recorded import RecordedSession
from gconsole.session.export.slice import slice_session
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import Meta, RecorderRun, Session, SessionError, all_sessions, find, named
from gconsole.session.manage import catalog, retention
from gconsole.session.manage.compact import compact, drop_segments
from gconsole.session.manage.retention import Limits, RetainedSession
from gconsole.session.record import recording, recovery
from gconsole.session.replay import Replay

DAY = 86_400 * SECOND
START = 1_790_000_000 * SECOND


def test_session_status_is_recording_crashed_or_closed(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3), gpus(2, first=4)])
    with session.lock():
        assert catalog.entry_of(session).status == "recording"
    listed = catalog.entry_of(session)
    assert (listed.status, listed.meta.records, listed.meta.counts) == ("crashed", 5, {"gpu": 5})
    recovery.recover(session)
    assert catalog.entry_of(session).status == "closed"


def test_a_damaged_session_json_is_listed_with_what_to_try(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    session.meta_path.write_text("{")
    (listed,) = catalog.list_sessions(tmp_path)
    assert listed.status == "unreadable"
    assert "sessions recover night" in listed.problem


def test_a_session_is_found_by_name_or_by_path(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(1)])
    assert find("night", tmp_path) == session
    assert find(str(session.path), tmp_path / "elsewhere") == session
    with pytest.raises(SessionError, match="no session "):
        find("day", tmp_path)


def test_folder_without_session_json_is_reported_as_not_a_session(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(SessionError, match=r"photos: not a session folder: session\.json not found"):
        find(str(tmp_path / "photos"), tmp_path)
    with pytest.raises(SessionError, match="nowhere: no such file or folder"):
        find(str(tmp_path / "nowhere"), tmp_path)


def test_file_given_for_a_session_is_reported_with_the_way_to_import_it(tmp_path):
    (tmp_path / "night.ndjson").touch()
    with pytest.raises(
        SessionError, match=r"a file, not a session; import it first: gconsole sessions import .*ndjson"
    ):
        find(str(tmp_path / "night.ndjson"), tmp_path)


def test_session_is_found_beside_a_file_of_its_name_in_the_working_directory(tmp_path, monkeypatch):
    session = crashed_session(tmp_path / "sessions", "night", [gpus(1)])
    (tmp_path / "night").touch()
    monkeypatch.chdir(tmp_path)
    assert find("night", tmp_path / "sessions") == session
    (tmp_path / "day").touch()
    with pytest.raises(SessionError, match="day: a file, not a session"):
        find("day", tmp_path / "sessions")


def test_non_interactive_delete_requires_yes(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(1)])
    result = CliRunner().invoke(sessions, ["delete", "night", "--folder", str(tmp_path)])
    assert result.exit_code == 2 and "--yes" in result.output and session.path.exists()
    result = CliRunner().invoke(sessions, ["delete", "night", "--yes", "--folder", str(tmp_path)])
    assert result.exit_code == 0 and not session.path.exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-x", "x" * 65, "a b", "a\n"])
def test_session_name_unsafe_as_a_folder_name_is_rejected(tmp_path, name):
    with pytest.raises(SessionError, match="not a valid session name"):
        named(name, tmp_path)


def test_renaming_keeps_all_records_and_rejects_an_existing_name(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    crashed_session(tmp_path, "day", [gpus(1)])
    with pytest.raises(SessionError, match="already"):
        catalog.rename(session, "day")
    renamed = catalog.rename(session, "evening")
    assert renamed.read().name == "evening"
    assert list(reader.records(renamed.path)) == gpus(3)


def test_session_being_written_cannot_be_renamed_deleted_recovered_or_merged(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    with session.lock():
        for act in (
            lambda: catalog.rename(session, "x"), lambda: retention.delete(session), lambda: recovery.recover(session),
            lambda: catalog.merge([session], named("x", tmp_path)),
        ):  # fmt: skip
            with pytest.raises(SessionError, match="being written"):
                act()
    assert list(reader.records(session.path)) == gpus(3)


def test_merging_overlapping_sessions_keeps_each_record_once_in_order(tmp_path):
    one = crashed_session(tmp_path, "one", [gpus(2), gpus(2, agent="agent2", node="node2", first=3), gpus(4, first=3)])
    two = crashed_session(tmp_path, "two", [gpus(6, first=4)])
    meta = catalog.merge([one, two], named("both", tmp_path))
    records = list(reader.records(named("both", tmp_path).path))
    assert [record.seq for record in records if record.agent == "agent1"] == list(range(1, 10))
    assert [record.seq for record in records if record.agent == "agent2"] == [3, 4]
    assert (meta.records, meta.state, meta.merged) == (11, "closed", ("one", "two"))
    assert list(reader.records(one.path)) != [], "the merged sessions are kept"


def test_merging_into_an_existing_name_is_rejected_and_leaves_that_session_unchanged(tmp_path):
    one = crashed_session(tmp_path, "one", [gpus(3)])
    with pytest.raises(SessionError, match="already"):
        catalog.merge([one], one)
    assert list(reader.records(one.path)) == gpus(3)


def test_failed_session_write_leaves_no_files_behind(tmp_path):
    def broken():
        yield from gpus(3)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="source is gone"):
        writer.write_session(named("half", tmp_path), broken())
    assert all_sessions(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_note_on_a_closed_session_is_appended_as_its_last_record(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    recovery.recover(session)
    catalog.mark(session, "the switch was rebooted here")
    *_, last = reader.records(session.path)
    assert isinstance(last, Mark)
    assert last.text == "the switch was rebooted here"
    assert session.read().counts == {"gpu": 3, "mark": 1}
    assert recovery.verify(session).is_sound


def test_notes_and_stop_for_a_recording_session_are_queued_as_requests(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    with session.lock():
        catalog.mark(session, "hello")
        recording.request_stop(session)
    assert sorted(recording.pending_requests(session), key=str) == [None, "hello"]
    assert list(recording.pending_requests(session)) == []


def test_record_filter_selects_by_kind_and_by_time_range(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3), [Mark(agent="c", seq=1, rx=50 * SECOND, text="x")]])
    assert list(reader.records(session.path, reader.RecordFilter(kinds={"mark"}))) == [
        Mark(agent="c", seq=1, rx=50 * SECOND, text="x")
    ]
    choice = reader.RecordFilter(from_rx=2 * SECOND, to_rx=3 * SECOND)
    assert [record.seq for record in reader.records(session.path, choice)] == [2]


# -- retention ---------------------------------------------------------------------------------------------------------


def kept(tmp_path, *sizes_and_ends):
    return [
        RetainedSession(named(f"s{i}", tmp_path), size, None if days is None else -days * DAY)
        for i, (size, days) in enumerate(sizes_and_ends)
    ]


def test_no_session_is_deleted_without_retention_limits(tmp_path):
    assert retention.sessions_to_delete(kept(tmp_path, (10**12, 900)), Limits(), 0) == []


def test_oldest_closed_sessions_are_deleted_until_the_rest_fits_max_bytes(tmp_path):
    found = kept(tmp_path, (40, 1), (40, 3), (40, 2), (40, None))
    gone = retention.sessions_to_delete(found, Limits(max_bytes=100), 0)
    assert [one.session.name for one in gone] == ["s1", "s2"]
    assert "max_bytes" in gone[0].reason


def test_sessions_past_max_age_are_deleted_except_unclosed_ones(tmp_path):
    gone = retention.sessions_to_delete(kept(tmp_path, (1, 31), (1, 29), (1, None)), Limits(max_age_s=30 * 86_400), 0)
    assert [one.session.name for one in gone] == ["s0"]
    assert "31 d ago" in gone[0].reason


def test_retention_reports_and_logs_which_session_it_deleted_and_why(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)], Meta(created=1, parts=(RecorderRun(began=1),)))
    recovery.recover(session)
    (words,) = retention.enforce_limits(tmp_path, Limits(max_age_s=60.0), 100 * DAY)
    assert "night was deleted" in words
    assert "max_age" in words
    assert not session.path.exists()
    (line,) = (tmp_path / retention.DELETED_LOG).read_bytes().splitlines()
    gone = msgspec.json.decode(line, type=retention.Deleted)
    assert (gone.name, gone.records, gone.deleted_at) == ("night", 3, 100 * DAY)
    assert gone.bytes > 0 and "max_age" in gone.reason


def test_retention_reports_when_crashed_sessions_alone_exceed_max_bytes(tmp_path):
    crashed_session(tmp_path, "night", [gpus(3)])
    (words,) = retention.enforce_limits(tmp_path, Limits(max_bytes=10), 0)
    assert "more than [sessions] max_bytes" in words
    assert named("night", tmp_path).path.exists(), "a crashed session is not deleted"


def test_session_without_read_permission_is_listed_as_unreadable_beside_the_others(tmp_path, monkeypatch):
    session = crashed_session(tmp_path, "night", [gpus(1)])
    crashed_session(tmp_path, "day", [gpus(1)])
    looked_at = Path.stat

    def refusing(path, **how):
        if session.path in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return looked_at(path, **how)

    monkeypatch.setattr(Path, "stat", refusing)  # root can read everything
    found = {one.session.name: (one.status, one.problem) for one in catalog.list_sessions(tmp_path)}
    assert found["day"][0] == "crashed"
    assert found["night"][0] == "unreadable" and "Permission denied" in found["night"][1]


def test_recover_continues_past_a_session_it_cannot_recover(tmp_path):
    night, day = crashed_session(tmp_path, "night", [gpus(1)]), crashed_session(tmp_path, "day", [gpus(1)])
    night.meta_path.write_text('{"schema": "gconsole.session/9"}')
    (tmp_path / "a").mkdir()
    newer = Session(night.path.rename(tmp_path / "a-newer"))
    result = CliRunner().invoke(sessions, ["recover", "--folder", str(tmp_path)], standalone_mode=False)
    assert result.return_value == 2 and "update gconsole" in result.output
    assert catalog.entry_of(day).status == "closed" and newer.meta_path.read_text().endswith('/9"}')


@pytest.mark.parametrize("how", ["closed", "crashed", "only Parquet"])
def test_list_replay_export_and_python_agree_on_the_span(tmp_path, how):
    records = [Mark(text=str(n), rx=START + n * 10**9) for n in (0, 5, 3, 9)]  # the clock was set back
    meta = Meta(parts=(RecorderRun(began=START + 10**9, how="stopped", version=__version__),))
    session = named("night", tmp_path)
    writer.write_session(session, records, meta)
    if how == "crashed":
        meta = session.read()
        meta.state, meta.sealed, meta.seals, meta.first_rx, meta.last_rx = "recording", 0, (), None, None
        session.write(meta)
    if how == "only Parquet":
        compact(session)
        drop_segments(session)
    expected = (START + 10**9, START + 9 * 10**9)

    assert catalog.entry_of(session).meta.span == expected
    player = Replay(session)
    assert (player.begin, player.end) == expected
    assert RecordedSession(session.path)._span_ns() == expected
    choice = slice_session(session.path, begin="0%", end="100%").choice
    assert (choice.from_rx, choice.to_rx) == expected
