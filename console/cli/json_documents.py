"""Documents that commands print with `--json`, and the list of what every command prints so.

Keys of an object are added, never removed or given another meaning, as long as the number in `schema` is the same.
What is not known is null.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ..fleet.deploy.binaries import CachedBinary

#: Command → what `--json` prints: the schema of an object, or a description of the lines or the list.
PRINTED: Final[dict[str, str]] = {
    "serve": "gconsole.serve/1 (url, and acting_url with --allow-actions, each with a new token in it), on one line, "
    "as soon as it listens",
    "api": "gconsole.api/1 (url, token if it is new, else access_file), on one line, as soon as it listens",
    "batch": "gconsole.report/1",
    "watch": "NDJSON: an event a line; with --test-rule gconsole.rule_test/1; with --install, --uninstall and --print "
    "gconsole.unit/1",
    "record": "gconsole.session_summary/1; with --last and --since gconsole.kept/1",
    "sessions compact": "gconsole.compact/1",
    "sessions delete": "gconsole.delete/1",
    "sessions duckdb": "gconsole.duckdb/1",
    "sessions import": "gconsole.import/1",
    "sessions list": "a list with the keys of gconsole.session_summary/1 for each session",
    "sessions mark": "gconsole.mark/1",
    "sessions merge": "gconsole.merge/1",
    "sessions recover": "gconsole.recover/1",
    "sessions rename": "gconsole.rename/1",
    "sessions show": "gconsole.session_summary/1",
    "sessions stop": "gconsole.stop_recording/1",
    "sessions verify": "gconsole.verify/1",
    "diff": "gconsole.diff/1",
    "diagnose": "gconsole.report/1",
    "query": "a list with an object for each row",
    "export": "gconsole.session/1, into the output file",
    "stat": "a list with an object for each row",
    "demo": "with --batch gconsole.report/1",
    "run fetch": "gconsole.fetch/1",
    "run logs": "NDJSON: a line of output a line",
    "run plan": "gconsole.plan/1",
    "run start": "gconsole.plan/1 with started and failures",
    "run status": "gconsole.jobs/1",
    "run stop": "gconsole.stop/1",
    "run wait": "gconsole.jobs/1",
    "ps": "gconsole.ps/1",
    "topo": "gconsole.topology/1",
    "eval": "gconsole.eval/1",
    "why": "a list with a profile for each rank",
    "collectives": "gconsole.collectives/1",
    "clocks": "NDJSON: a window of a node or an edge a line",
    "clocks apply": "gconsole.clocks_apply/1",
    "check": "gconsole.check/1; with --list gconsole.check_table/1",
    "doctor": "gconsole.doctor/1",
    "release": "gconsole.release/1",
    "clean": "gconsole.clean/1",
    "config init": "gconsole.config_file/1",
    "config keys": "gconsole.keys/1",
    "config show": "gconsole.config/1",
    "hosts add": "gconsole.hosts_changed/1",
    "hosts list": "gconsole.hosts/1",
    "hosts remove": "gconsole.hosts_changed/1",
    "bundle": "gconsole.bundle/1",
    "schema": "a JSON schema, also without --json",
}


class CompactedSession(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions compact`: the Parquet files of a session."""

    schema: Literal["gconsole.compact/1"] = "gconsole.compact/1"
    session: str
    folder: str  # of the Parquet files
    records: int
    files: int
    bytes: int
    is_recording: bool  # records that are not sealed yet are not included
    dropped_bytes: int | None  # of segments, with --drop-segments
    damaged_bytes: int  # of segments, skipped


class DeletedSession(msgspec.Struct, frozen=True):
    """A session that was deleted."""

    session: str
    bytes: int


class DeletedSessions(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions delete`: what was deleted."""

    schema: Literal["gconsole.delete/1"] = "gconsole.delete/1"
    deleted: tuple[DeletedSession, ...]


class DuckdbFile(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions duckdb`: a file with views of a session."""

    schema: Literal["gconsole.duckdb/1"] = "gconsole.duckdb/1"
    session: str
    output: str
    records: int
    is_recording: bool  # records that are not sealed yet are not included
    damaged_bytes: int  # of segments, skipped


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions import`: the new session."""

    schema: Literal["gconsole.import/1"] = "gconsole.import/1"
    session: str
    path: str
    records: int


class AddedMarker(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions mark`: the marker that was added."""

    schema: Literal["gconsole.mark/1"] = "gconsole.mark/1"
    session: str
    text: str


class MergedSession(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions merge`: the new session, and those it was made of."""

    schema: Literal["gconsole.merge/1"] = "gconsole.merge/1"
    session: str
    path: str
    merged: tuple[str, ...]
    records: int


class RecoveredSession(msgspec.Struct, frozen=True):
    """The result of repairing one session; counts are null if `problem` prevented it."""

    session: str
    records: int | None
    frames: int | None
    cut_bytes: int | None
    damages: tuple[str, ...] | None
    unknown: tuple[str, ...] | None
    missing: int | None
    problem: str | None


class RecoveredSessions(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions recover`: each session that was repaired, or could not be."""

    schema: Literal["gconsole.recover/1"] = "gconsole.recover/1"
    sessions: tuple[RecoveredSession, ...]


class RenamedSession(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions rename`: the old and the new name."""

    schema: Literal["gconsole.rename/1"] = "gconsole.rename/1"
    session: str
    previous: str
    path: str


class StoppedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions stop`: the session whose recording ended."""

    schema: Literal["gconsole.stop_recording/1"] = "gconsole.stop_recording/1"
    session: str


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """`record --last` and `--since`: a session made of black boxes."""

    schema: Literal["gconsole.kept/1"] = "gconsole.kept/1"
    session: str
    path: str
    began: int  # CLOCK_REALTIME of the console, ns
    ended: int
    wanted_ns: int  # length that was requested
    is_limited: bool  # older records were deleted; if false, nothing was recorded before
    records: int
    bytes: int
    lost: int  # records that could not be written
    damaged_bytes: int  # left out


class TraceOnClock(msgspec.Struct, frozen=True):
    """One trace on the common clock."""

    path: str
    node: str
    rank: int | None
    events: int
    begin_ns: int
    end_ns: int
    bound_ns: int  # largest error bound


class AppliedClocks(msgspec.Struct, frozen=True, kw_only=True):
    """`clocks apply`: the merged trace."""

    schema: Literal["gconsole.clocks_apply/1"] = "gconsole.clocks_apply/1"
    output: str
    traces: tuple[TraceOnClock, ...]


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """`config init`: the file that was written."""

    schema: Literal["gconsole.config_file/1"] = "gconsole.config_file/1"
    path: str


class KeyBinding(msgspec.Struct, frozen=True):
    """An action and its keys."""

    id: str
    keys: tuple[str, ...]
    help: str


class KeyBindings(msgspec.Struct, frozen=True, kw_only=True):
    """`config keys`: the file of the user's own keys, whether it exists or not, and the default keys."""

    schema: Literal["gconsole.keys/1"] = "gconsole.keys/1"
    path: str
    fixed: tuple[str, ...]  # not configurable
    actions: tuple[KeyBinding, ...]


class ChangedHosts(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts add` and `hosts remove`: the file and the number of nodes."""

    schema: Literal["gconsole.hosts_changed/1"] = "gconsole.hosts_changed/1"
    file: str
    added: int
    removed: int


class CachedBinaries(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle`: the binaries for nodes."""

    schema: Literal["gconsole.bundle/1"] = "gconsole.bundle/1"
    binaries: tuple[CachedBinary, ...]


class WatchUnit(msgspec.Struct, frozen=True, kw_only=True):
    """`watch --install`, `--uninstall` and `--print`: a systemd unit of the user, and the commands that use it."""

    schema: Literal["gconsole.unit/1"] = "gconsole.unit/1"
    path: str
    action: Literal["installed", "removed", "printed", "absent"]
    text: str | None  # of the unit; null if it was removed or is absent
    next_steps: tuple[str, ...]


class ActionResult(msgspec.Struct, frozen=True):
    """The result of one action of a rule."""

    action: str
    is_ok: bool | None  # null: skipped
    text: str


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """`watch --test-rule`: the result of each action."""

    schema: Literal["gconsole.rule_test/1"] = "gconsole.rule_test/1"
    rule: str
    outcomes: tuple[ActionResult, ...]


#: Those that `gconsole schema` describes, beside records and reports.
DOCUMENTS: Final[tuple[type[msgspec.Struct], ...]] = (
    CompactedSession, DeletedSessions, DuckdbFile, ImportedSession, AddedMarker, MergedSession, RecoveredSessions,
    RenamedSession, StoppedRecording, KeptSession, AppliedClocks, ConfigFile, KeyBindings, ChangedHosts, CachedBinaries,
    WatchUnit, RuleTest,
)  # fmt: skip
