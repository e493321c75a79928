"""Splitting of an output into the streams of its processes: prefixes of launchers, schedulers and log collectors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

#: Characters. Longer lines are cut: no pattern needs more, and the time to match one is bounded.
MAX_LINE: Final = 4_096
#: Lines at each end of an output by which the layers of prefixes that all lines share are recognised.
_SAMPLE: Final = 60
#: Characters of a line that quotes a traceback.
MAX_JSON_LINE: Final = 65_536
_QUOTED: Final = '"Traceback (most recent call last):\\n'
_JSON_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|[@-Z\\-_])")
_NUMBER: Final = r"(?P<{}>[0-9]{{1,7}})"
_TIME: Final = r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}[T _][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"
_LAUNCHER: Final = re.compile(r"torch[/.]distributed[/.](?:elastic|run|launch)")
_LEVELS: Final = frozenset(("info", "warning", "error", "debug", "warn", "critical", "fatal", "wandb", "note", "trace"))
#: Prefixes that only one program writes.
_OWN: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\[rank{_NUMBER.format('rank')}\]: ?",  # torch's excepthook and its C++ log
        rf"\[[A-Za-z_][A-Za-z_-]{{0,40}}{_NUMBER.format('local')}\]: ?",  # torchrun --tee, accelerate
        rf"\[(?:[^\[\]@,]{{1,100}}@)?[0-9]{{1,9}},{_NUMBER.format('rank')}\]<(?:stdout|stderr|stddiag)>:? ?",  # mpirun
        rf"\[[0-9]{{1,9}},mpirank:{_NUMBER.format('rank')},[^\]]{{1,100}}\]<(?:stdout|stderr)>:? ?",  # SageMaker
        rf"\((?:[^()]{{0,200}} )?(?:pid={_NUMBER.format('pid')}|rank={_NUMBER.format('rank')})(?:, ip=(?P<node>[^(),\s]{{1,100}}))?\) ?",  # Ray
    )
)
#: Prefixes that ordinary text may begin with: they count only where most lines have them.
_SHARED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_TIME} (?:stdout|stderr) [FP] ",  # CRI logs of Kubernetes
        r"\[pod/(?P<node>[^\s/\]]{1,253})/[^\s\]]{1,253}\] ",  # kubectl logs --prefix
        rf"\[?{_TIME}\]?:? ",  # kubectl logs --timestamps, ts
        r"[A-Z][a-z]{2} +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} (?P<node>[^\s:]{1,100}) [^\s\[:]{1,100}(?:\[[0-9]+\])?: ?",  # journal
        rf" {{0,6}}{_NUMBER.format('label')}: ?",  # srun --label
        rf"\[{_NUMBER.format('label')}\] ",  # mpiexec -prepend-rank
        r"(?P<node>[A-Za-z0-9][A-Za-z0-9.-]{0,100}): ?",  # pdsh
    )
)


class OutputStream(msgspec.Struct):
    """Lines of one output with the same prefixes: of one process, or of several that share it without prefixes."""

    key: tuple[str, ...]
    rank: int | None = None
    local_rank: int | None = None
    label: int | None = None
    node: str | None = None
    pid: int | None = None
    is_hooked: bool = False  # its lines have torch's prefix: written by its hook for exceptions that nothing handled
    lines: list[str] = []
    numbers: list[int] = []  # of its lines in the output, from 1
    times: dict[int, str] = {}  # by index: the time before the line


def split_streams(text: str) -> list[OutputStream]:
    """The streams of an output, in the order of their first lines. Control sequences are removed."""
    lines = _clean_lines(text)
    layers = _layers(lines)
    streams: dict[tuple[str, ...], OutputStream] = {}
    for number, line in enumerate(lines, 1):
        rest, key, values = _without_prefixes(line, layers)
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = _stream(key, values)
        if values and (time := values.get("time")):
            stream.times[len(stream.lines)] = time
        for part in _logged_traceback(rest) if _QUOTED in rest else (rest,):
            stream.lines.append(part)
            stream.numbers.append(number)
    _number_ranks(list(streams.values()))
    return list(streams.values())


def _clean_lines(text: str) -> list[str]:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(text) > MAX_LINE:
        lines = [line if len(line) <= MAX_LINE else line[: _longest(line)] for line in lines]
    if lines and lines[0].startswith('{"log":'):
        lines = [_docker_line(line) for line in lines]
    return lines


def _longest(line: str) -> int:
    return MAX_JSON_LINE if _QUOTED in line else MAX_LINE


def _logged_traceback(line: str) -> list[str]:
    """The lines of a traceback that a record of a JSON log quotes, after the record's head; else the line alone."""
    start = line.index(_QUOTED)
    quoted = _JSON_STRING.match(line, start)
    try:
        text = str(json.loads(quoted[0])) if quoted is not None else ""
    except ValueError:
        text = ""
    return [line[:start][:MAX_LINE], *(part[:MAX_LINE] for part in text.splitlines())] if text else [line[:MAX_LINE]]


def _docker_line(line: str) -> str:
    """The text of a line of Docker's JSON log, after its time."""
    try:
        fields = json.loads(line)
        return f"{fields['time']} {str(fields['log']).rstrip()}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return line


def _layers(lines: list[str]) -> list[re.Pattern[str]]:
    """The prefixes that most lines share, the outermost first."""
    sample = [line for line in (*lines[:_SAMPLE], *lines[_SAMPLE:][-_SAMPLE:]) if line.strip()]
    layers: list[re.Pattern[str]] = []
    while len(layers) < 4 and len(sample) >= 4:
        pattern = next((pattern for pattern in _SHARED if pattern not in layers and _is_shared(pattern, sample)), None)
        if pattern is None:
            break
        layers.append(pattern)
        sample = [line[match.end() :] if (match := pattern.match(line)) else line for line in sample]
        sample = [line for line in sample if line.strip()]
    return layers


def _is_shared(pattern: re.Pattern[str], sample: list[str]) -> bool:
    matches = [match for line in sample if (match := pattern.match(line))]
    if len(matches) < 0.7 * len(sample):
        return False
    if pattern is not _SHARED[-1]:
        return True
    names = {match["node"] for match in matches}
    is_host = all(re.search("[0-9.-]", name) and name.lower() not in _LEVELS for name in names)
    return is_host and len(names) <= max(1, len(matches) // 4)


def _without_prefixes(
    line: str, layers: Iterable[re.Pattern[str]]
) -> tuple[str, tuple[str, ...], dict[str, str | None] | None]:
    """A line without prefixes, the key of its stream, and the values of the prefixes (None without any)."""
    values: dict[str, str | None] | None = None
    key: list[str] = []
    position = 0
    for pattern in layers:
        if match := pattern.match(line, position):
            values = _with_values(values, match, key)
            position = match.end()
    for _ in range(4):
        if line[position : position + 1] not in ("[", "("):
            break
        for pattern in _OWN:
            if match := pattern.match(line, position):
                values = _with_values(values, match, key)
                position = match.end()
                break
        else:
            break
    return (line[position:] if position else line), tuple(key), values


def _with_values(values: dict[str, str | None] | None, match: re.Match[str], key: list[str]) -> dict[str, str | None]:
    values = values if values is not None else {}
    for name, value in match.groupdict().items():
        if value is not None:
            values[name] = value
            if name != "time":
                key.append(f"{name}={value}")
    if match.re is _OWN[0]:
        values["hooked"] = "1"
    return values


def _stream(key: tuple[str, ...], values: dict[str, str | None] | None) -> OutputStream:
    def number(name: str) -> int | None:
        value = values.get(name) if values else None
        return int(value) if value is not None else None

    return OutputStream(
        key=key, rank=number("rank"), local_rank=number("local"), label=number("label"), pid=number("pid"),
        node=values.get("node") if values else None, is_hooked=bool(values and values.get("hooked")),
        lines=[], numbers=[], times={},
    )  # fmt: skip


def _number_ranks(streams: list[OutputStream]) -> None:
    """Give streams without a rank the one of the stream of the same process that has it."""
    _share_ranks(streams, lambda stream: (stream.node, stream.label, stream.local_rank, stream.pid))
    labelled = [stream for stream in streams if stream.label is not None]
    inner = [stream for stream in labelled if stream.rank is not None]
    starts_ranks = any(stream.local_rank is not None or stream.rank not in (None, stream.label) for stream in labelled)
    if starts_ranks or any(_LAUNCHER.search("\n".join(stream.lines[-_SAMPLE:])) for stream in labelled):
        return  # srun --label numbers its tasks, and each of them starts ranks itself
    for stream in labelled:
        if stream not in inner:
            stream.rank = stream.label


def _share_ranks(streams: list[OutputStream], process: Callable[[OutputStream], tuple[object, ...]]) -> None:
    ranks: dict[tuple[object, ...], set[int]] = {}
    for stream in streams:
        if stream.rank is not None:
            ranks.setdefault(process(stream), set()).add(stream.rank)
    for stream in streams:
        candidates = ranks.get(process(stream), set())
        if stream.rank is None and len(candidates) == 1 and (stream.local_rank is not None or stream.pid is not None):
            stream.rank = next(iter(candidates))
