"""The mutations: each puts back a defect that was once fixed, or removes a rule that a fix added.

`old` occurs exactly once in `console/` and `remote/` (a test checks it), so that a mutation follows its code from
module to module. `tests` are the files, or `file::test`, that notice it; the script runs only these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutation:
    """One change of the product that must make a test fail."""

    name: str
    defect: str  # what a user would see
    old: str
    new: str
    tests: tuple[str, ...]


FLEET = "tests/unit/fleet"
HANG = "tests/unit/analysis/hang"
SESSION = "tests/unit/session"
AGENT = "tests/unit/agent"
REMOTE = "tests/unit/remote"

MUTATIONS: Final = (
    # -- records from nodes ----------------------------------------------------------------------------------------
    Mutation(
        "duplicate_records",
        "records sent again after a reconnect are counted twice",
        "if seq <= self.last_seq:",
        "if seq < self.last_seq:",
        (f"{FLEET}", "tests/faults/test_link.py"),
    ),
    Mutation(
        "no_gap",
        "records lost on the link leave no gap record",
        "if seq > self.last_seq + 1:",
        "if seq > self.last_seq + 10:",
        (f"{FLEET}", "tests/unit/test_contract.py"),
    ),
    Mutation(
        "console_kinds_from_node",
        "a node publishes findings and verdict records of the console",
        "return type(record) in _CONSOLE_KINDS or",
        "return False or",
        (f"{FLEET}", "tests/security/test_hostile_agent.py"),
    ),
    Mutation(
        "unlimited_values",
        "a node's infinite or absurd value reaches sums over the fleet",
        "Float = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]",
        "Float = float",
        (f"{FLEET}/test_quotas.py",),
    ),
    Mutation(
        "unlimited_captures",
        "a node sends captures that nobody requested",
        'return "a capture that was not requested"',
        "return None",
        (f"{FLEET}/test_quotas.py",),
    ),
    Mutation(
        "quota_never_frees",
        "processes that ended count against a node's quota for ever",
        "is_gone(record):\n            self._forget(kind, key)",
        "is_gone(record):\n            pass",
        (f"{FLEET}/test_quotas.py",),
    ),
    Mutation(
        "bucket_overflows",
        "an idle node saves up an unlimited burst",
        "self._level = min(self._burst, self._level + (now - self._updated) * self._rate)",
        "self._level = self._level + (now - self._updated) * self._rate",
        (f"{FLEET}/test_quotas.py",),
    ),
    # -- connections -----------------------------------------------------------------------------------------------
    Mutation(
        "backoff_without_bound",
        "a node that stays away is retried less and less for hours",
        "min(self._max_s * 2, MOST_S)",
        "self._max_s * 2",
        (f"{FLEET}/test_backoff.py",),
    ),
    Mutation(
        "backoff_without_jitter",
        "all nodes reconnect in the same instant",
        "return random.uniform(0, max_s)",
        "return max_s",
        (f"{FLEET}/test_backoff.py",),
    ),
    Mutation(
        "probe_penalised_sshd",
        "probes of a reachable sshd add up to its penalty",
        "pause_s = pause_s * 2 if answers else PROBE_INTERVAL_S",
        "pause_s = PROBE_INTERVAL_S",
        (f"{FLEET}/test_backoff.py",),
    ),
    Mutation(
        "half_open_at_once",
        "a connection that loses records is closed before a retransmission failed",
        "return not loses_records or run[-2].retransmits > run[0].retransmits",
        "return True",
        (f"{FLEET}/test_dead_connection.py",),
    ),
    Mutation(
        "lost_after_one_probe",
        "one lost packet closes a connection",
        "AWAY_SAMPLES = 2",
        "AWAY_SAMPLES = 1",
        (f"{FLEET}/test_dead_connection.py",),
    ),
    Mutation(
        "revoked_on_other_port",
        "a revoked host key is accepted on a port other than 22",
        "return (*matches[:2], [*matches[2], *revoked], *matches[3:])",
        "return tuple(matches)",
        (f"{FLEET}/test_host_keys.py",),
    ),
    Mutation(
        "accept_new_where_ca",
        "accept-new takes a plain key where an authority is known",
        "return bool(keys or authorities)",
        "return bool(keys)",
        (f"{FLEET}/test_host_keys.py", "tests/cluster/test_jump_host_keys.py"),
    ),
    Mutation(
        "known_hosts_joined_lines",
        "a key is appended to an unfinished last line of known_hosts",
        'file.write(line.encode() if ends_whole else b"\\n" + line.encode())',
        "file.write(line.encode())",
        (f"{FLEET}/test_host_keys.py",),
    ),
    # -- verdicts --------------------------------------------------------------------------------------------------
    Mutation(
        "blames_followers",
        "all dead ranks are named instead of those that exited first",
        "dead = tuple(rank for rank in dead if rank not in ends or ends[rank] - earliest <= TOGETHER_NS)",
        "pass",
        (HANG,),
    ),
    Mutation(
        "behind_without_waiters",
        "a rank is named although no other rank waits",
        "if not candidates or not (is_awaited or len(view.states) == 1):",
        "if not candidates:",
        (HANG,),
    ),
    Mutation(
        "accuses_unread",
        "ranks whose stacks were not read do not stop a verdict",
        "    if not hidden or not view.waiting:\n        return None",
        "    return None",
        (HANG,),
    ),
    Mutation(
        "names_equal_halves",
        "one of two equal groups is named",
        "has_minority = len(groups) == 2 and len(groups[0].ranks) > len(groups[1].ranks)",
        "has_minority = len(groups) == 2",
        (HANG,),
    ),
    Mutation(
        "poller_is_culprit",
        "a rank that polls is named beside the one that sleeps",
        "if asleep and len(asleep) < len(stuck):",
        "if False:",
        (HANG,),
    ),
    Mutation(
        "hung_on_two_samples",
        "a job that communicates is called hung",
        "slept = [state for state in held_up if _slept_s(state) >= least]",
        "slept = list(held_up)",
        (HANG,),
    ),
    Mutation(
        "absent_on_full_nodes",
        "several absent ranks are named although they may run on nodes that are not listed",
        "if view.out_of_sight or not (_has_room(view) or len(absent) == 1):",
        "if view.out_of_sight:",
        (HANG,),
    ),
    # -- collectives and clocks --------------------------------------------------------------------------------------
    Mutation(
        "momentary_difference",
        "ranks that differ by one operation for a moment are a fault",
        "if waited_s is not None and waited_s < least_wait_s:",
        "if False:",
        ("tests/unit/analysis/collectives",),
    ),
    Mutation(
        "certain_with_unread",
        "a missing rank is certain although a member of the group was not read",
        'return "certain" if is_complete else "likely"',
        'return "certain"',
        ("tests/unit/analysis/collectives",),
    ),
    Mutation(
        "edge_never_expires",
        "an edge that is gone stays flagged for ever",
        "if entry[0] > oldest}",
        "}",
        ("tests/unit/analysis/test_flags.py",),
    ),
    Mutation(
        "flag_on_one_window",
        "one odd window flags a network edge",
        "if sum(past) >= FLAGGED:",
        "if sum(past) >= 1:",
        ("tests/unit/analysis/test_flags.py",),
    ),
    # -- store -----------------------------------------------------------------------------------------------------
    Mutation(
        "stack_paths_not_shared",
        "stacks that repeat a path have no frames",
        "frames = capture.paths.get(key)",
        "frames = None",
        ("tests/unit/store/test_captures.py",),
    ),
    Mutation(
        "captures_unbounded",
        "captures are never dropped from memory",
        "if len(self.table) > CAPTURES:",
        "if False:",
        ("tests/unit/store/test_captures.py",),
    ),
    # -- text ------------------------------------------------------------------------------------------------------
    Mutation(
        "secret_after_flag",
        "`--api-key X` is shown and recorded",
        "if _FLAG.fullmatch(before) and is_value:",
        "if False:",
        (f"{SESSION}/test_redact.py", f"{SESSION}/test_secret_leaks.py"),
    ),
    Mutation(
        "userinfo_shown",
        "the password in a URL is shown",
        "for pattern in (_USERINFO, _USER_ALONE,",
        "for pattern in (_USER_ALONE,",
        (f"{SESSION}/test_redact.py",),
    ),
    Mutation(
        "terminal_escapes",
        "a node's text steers the terminal",
        'return Printable("".join(letter if letter.isprintable() else "·" for letter in text))',
        "return text",
        ("tests/unit/text", "tests/security/test_terminal_output.py"),
    ),
    Mutation(
        "minus_from_now",
        "`-5m` means five minutes after the start",
        "return ns + (now if now is not None else end if is_backwards else start)",
        "return ns + (now if now is not None else start)",
        ("tests/unit/text/test_timespec.py",),
    ),
    Mutation(
        "fraction_of_seconds",
        "`1.5h` is one hour",
        'return int(match[2]) * unit + int((match[3] or "").ljust(9, "0")) * unit // 10**9',
        "return int(match[2]) * unit",
        ("tests/unit/text/test_timespec.py",),
    ),
    # -- sessions --------------------------------------------------------------------------------------------------
    Mutation(
        "torn_frame_stays",
        "half a frame stays in a segment after the disk was full",
        "os.ftruncate(self._fd, self.size)",
        "pass",
        (f"{SESSION}/test_segment_writer.py", "tests/sessions/test_disk.py"),
    ),
    Mutation(
        "drops_uncounted",
        "segments are dropped although Parquet lacks rows",
        "if compacted != recorded:",
        "if False:",
        (f"{SESSION}/test_compact.py", f"{SESSION}/test_parquet_only.py"),
    ),
    Mutation(
        "drops_open_session",
        "segments of a session that is being written are dropped",
        'if meta.state != "closed":\n            raise SessionError(f"{session.name}: not closed',
        'if False:\n            raise SessionError(f"{session.name}: not closed',
        (f"{SESSION}/test_parquet_only.py", f"{SESSION}/test_compact.py"),
    ),
    Mutation(
        "footer_of_gigabytes",
        "a Parquet footer that was tampered with takes all memory",
        "if footer > min(size, MAX_FOOTER_BYTES):",
        "if False:",
        ("tests/security/test_sent_session.py",),
    ),
    # -- agent -----------------------------------------------------------------------------------------------------
    Mutation(
        "pickle_opcodes",
        "a dump with an unknown opcode is skipped over",
        'raise BadPickle("opcode 0x%02x',
        'continue\n                raise BadPickle("opcode 0x%02x',
        ("tests/unit/comms/test_safe_pickle.py",),
    ),
    Mutation(
        "resends_acknowledged",
        "an agent sends records again that the console has stored",
        "self._written = max(min(seq, self._written), self._acknowledged)",
        "self._written = 0",
        (f"{AGENT}/test_outbox.py",),
    ),
    Mutation(
        "unencodable_record",
        "a NaN in one record ends the agent",
        'except (ValueError, TypeError) as error:\n            text = "a %s record could not be sent',
        'except KeyError as error:\n            text = "a %s record could not be sent',
        (f"{AGENT}/test_outbox.py", "tests/unit/test_contract.py"),
    ),
    Mutation(
        "cache_open_to_others",
        "the agent executes binaries from a folder that others may enter",
        "if stat.S_IMODE(info.st_mode) & 0o077:\n        raise UnusableCache",
        "if False:\n        raise UnusableCache",
        (f"{AGENT}/test_cache.py",),
    ),
    Mutation(
        "cache_of_another_user",
        "the agent uses a cache folder of another user",
        "if info.st_uid != uid:\n        raise UnusableCache",
        "if False:\n        raise UnusableCache",
        (f"{AGENT}/test_cache.py", "tests/security/test_planted_files.py"),
    ),
    Mutation(
        "kills_reused_pid",
        "stopping a job kills another process that reuses a pid",
        "if pid > 1 and procfs.stat(pid).start_ticks == ticks:",
        "if pid > 1:",
        (f"{REMOTE}/test_jobs.py",),
    ),
    Mutation(
        "stopped_process_never_ends",
        "a stopped process of a job survives SIGTERM until it is killed",
        "_send(fresh, signal.SIGCONT)",
        "pass",
        (f"{REMOTE}/test_jobs.py", "tests/jobs/test_start_and_stop.py"),
    ),
    # -- HTTP ------------------------------------------------------------------------------------------------------
    Mutation(
        "any_origin",
        "a page of another site reads the API",
        "if origin is not None and not is_own and not self.allows(origin):",
        "if False:",
        ("tests/unit/web/test_auth.py",),
    ),
    Mutation(
        "any_host",
        "DNS rebinding reaches the API",
        "        if not self._is_own_name(host):",
        "        if False:",
        ("tests/unit/web/test_auth.py",),
    ),
    Mutation(
        "token_file_readable",
        "a token file that others may read is accepted",
        "if stat.S_IMODE(status.st_mode) & 0o077:",
        "if False:",
        ("tests/unit/web",),
    ),
)
