"""Checks the answers of children that parse dumps, logs and responses of RAS: what they parse may have taken one over.

A record gets only fields that its source has, each of its type: none of them can make it another record.
"""

from .values import count, figure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from .flight_recorder import FlightRecorderDump
    from .nccl_log import LogEntries
    from .nccl_ras import RasStatus

#: Records of one answer; characters of a text; members of a list.
MAX_FIELDS, MAX_TEXT, MAX_MEMBERS = 1 << 17, 4096, 1 << 17


def _is_count(value: "Any") -> bool:
    return value is None or (type(value) is int and count(value) is not None)


def _is_figure(value: "Any") -> bool:
    return value is None or figure(value) is not None


def _is_text(value: "Any") -> bool:
    return value is None or (isinstance(value, str) and len(value) <= MAX_TEXT)


def _is_flag(value: "Any") -> bool:
    return value is None or isinstance(value, bool)


def _list_of(is_valid: "Callable[[Any], bool]") -> "Callable[[Any], bool]":
    """Whether a value is None, or a list of such values, none of which is None."""

    def is_list(value: "Any") -> bool:
        if value is None:
            return True
        return isinstance(value, list) and len(value) <= MAX_MEMBERS and all(
            item is not None and is_valid(item) for item in value
        )  # fmt: skip

    return is_list


def _is_group(value: "Any") -> bool:
    return value is None or (_list_of(_is_text)(value) and len(value) == 2)


def _is_frame(value: "Any") -> bool:
    return isinstance(value, dict) and set(value) == {"function", "file", "line"} and (
        _is_text(value["function"]) and _is_text(value["file"]) and _is_count(value["line"])
    )  # fmt: skip


def _are_counts(value: "Any") -> bool:
    return isinstance(value, dict) and len(value) <= MAX_MEMBERS and all(map(_is_count, value.values()))


#: What each field may be, by name.
_CHECKS: "dict[str, Callable[[Any], bool]]" = {
    "process_group": _is_group, "op_counts": _are_counts, "frames": _list_of(_is_frame), "ranks": _list_of(_is_count),
}  # fmt: skip
for _check, _names in (
    (_is_count, "record_id pg_id collective_seq_id p2p_seq_id op_id time_created_ns time_discovered_started_ns "
     "time_discovered_completed_ns timeout_ms input_numel output_numel msg_size_bytes group_rank group_size pid "
     "last_enqueued_collective last_started_collective last_completed_collective oldest_record_id entries held bad"),
    (_is_figure, "duration_ms busbw_gbs"),
    (_is_text, "profiling_name state thread_name red_op stream version host group_state"),
    (_is_flag, "is_p2p retired repaired"),
    (_list_of(_list_of(_is_count)), "input_sizes output_sizes"),
    (_list_of(_is_text), "input_dtypes output_dtypes problems"),
):  # fmt: skip
    _CHECKS.update((_name, _check) for _name in _names.split())


def check_dump(dump: "FlightRecorderDump") -> "FlightRecorderDump":
    """The same dump. Raises ValueError if it is not what the parser makes."""
    _check_values(dump, ("version", "held", "problems"), ("entries", "earlier", "groups"))
    for entries in (dump.entries, dump.earlier):
        _check_records(entries, ("record_id", "retired", "profiling_name"))
    _check_records(dump.groups, ())
    return dump


def check_ras(status: "RasStatus") -> "RasStatus":
    """The same status. Raises ValueError if it is not what the parser makes."""
    _check_values(status, ("version", "problems", "repaired"), ("groups",))
    _check_records(status.groups, ("pid",))
    return status


def check_log(log: "LogEntries") -> "LogEntries":
    """The same operations. Raises ValueError if they are not what the parsers make."""
    _check_values(log, ("bad",), ("entries",))
    _check_records(log.entries, ("host", "pid", "profiling_name"))
    return log


def _check_values(answer: "Any", names: "Iterable[str]", lists: "Iterable[str]") -> None:
    values = vars(answer)
    if set(values) != {*names, *lists}:
        raise ValueError("invalid answer")
    if not all(_CHECKS[name](values[name]) for name in names) or not all(type(values[name]) is list for name in lists):
        raise ValueError("invalid answer")


def _check_records(records: "list[Any]", required: "Iterable[str]") -> None:
    """Records consist of known fields of their types, and have those that are required. Raises ValueError."""
    if len(records) > MAX_FIELDS:
        raise ValueError("invalid answer")
    for fields in records:
        if not isinstance(fields, dict) or not all(name in fields for name in required):
            raise ValueError("invalid answer")
        for name, value in fields.items():
            check = _CHECKS.get(name)
            if check is None or not check(value) or (name in ("profiling_name", "is_p2p") and value is None):
                raise ValueError("invalid answer")
