"""Arguments, environments and mapped libraries of processes, of those of other users read apart from the agent.

`prefetch` reads many processes at once, with one child per user. What is not prefetched is read when it is needed.
"""

from . import apart
from .apart import as_fields, as_number, as_text, as_texts
from .environ import LONGEST_VALUE, EnvironReader, LiveEnviron
from .programs import is_python_name
from .rank_variables import claim_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .procfs import ProcFs

_FILES, _FILES_OF_REFRESH = ("cmdline", "environ", "maps", "mem"), ("environ", "mem")


class Request(object):
    """What to read of a process. `live` is its live environment as it was read last, or None.

    `is_refresh`: only the live environment, of a process that was read before.
    """

    __slots__ = ("env_start", "is_refresh", "live", "pid", "ppid")

    def __init__(
        self, pid: int, ppid: int, env_start: int, live: "LiveEnviron | None" = None, is_refresh: bool = False
    ) -> None:
        self.pid, self.ppid, self.env_start, self.live, self.is_refresh = pid, ppid, env_start, live, is_refresh


class Reading(object):
    """What was read of a process: `argv`; `env` at exec, None if denied; `is_mapped`: whether a library is; `live`.

    `argv` is None if only the live environment was read.
    """

    __slots__ = ("argv", "env", "is_mapped", "live")

    def __init__(self, argv: "list[str] | None", env: "dict[str, str] | None", is_mapped: bool) -> None:
        self.argv, self.env, self.is_mapped = argv, env, is_mapped
        self.live: "LiveEnviron | None" = None  # None: its memory is not readable


class ProcessReader(object):
    """Reads arguments, the variables `names`, and whether one of `libraries` is part of a path in maps.

    Maps are searched, and the live environment is found, in processes that are Python or carry a rank; in all with
    `always`.
    """

    def __init__(
        self, procfs: "ProcFs", names: "Iterable[str]", libraries: "tuple[bytes, ...]", always: bool = False
    ) -> None:
        self.procfs = procfs
        self._names = frozenset(names)
        self._libraries, self._always = libraries, always
        self._own = EnvironReader(procfs, self._names)
        self._readings: "dict[int, Reading | Exception]" = {}

    def prefetch(self, requests: "Iterable[Request]") -> None:
        """Read these processes at once; `get` gives what was read, until the next call."""
        self._readings = {}
        self._read(requests)

    def get(self, request: "Request") -> "Reading":
        """What was or is read of a process. Raises OSError, and ValueError for invalid data."""
        reading = self._readings.get(request.pid)
        if reading is None or (isinstance(reading, Reading) and reading.argv is None and not request.is_refresh):
            self._read((request,))
            reading = self._readings[request.pid]
        if isinstance(reading, Exception):
            raise reading
        return reading

    def _read(self, requests: "Iterable[Request]") -> None:
        by_pid = {request.pid: request for request in requests}
        inherited: "dict[int, tuple[int, int | None]]" = {}  # pid: start of its environment, address of the live one
        apart_readers: "list[EnvironReader]" = []  # one in each child

        def read(procfs: "ProcFs", pid: int) -> "list[Any]":
            if procfs is not self.procfs and not apart_readers:
                apart_readers.append(EnvironReader(procfs, self._names))
            environ = self._own if procfs is self.procfs else apart_readers[0]
            return self._values_of(environ, by_pid[pid], inherited)

        files = {pid: _files_of(by_pid[pid]) for pid in sorted(by_pid)}
        for pid, answer in apart.read_each(self.procfs, files, read).items():
            try:
                failed = isinstance(answer, Exception)
                self._readings[pid] = answer if failed else self._checked(answer, by_pid[pid].live)
            except ValueError as error:
                self._readings[pid] = error

    def _values_of(
        self, environ: "EnvironReader", request: "Request", inherited: "dict[int, tuple[int, int | None]]"
    ) -> "list[Any]":
        """The arguments of a `Reading` as JSON has them, in the child."""
        procfs, pid, live = environ.procfs, request.pid, None
        if request.live is not None and request.live.address:
            live = LiveEnviron(request.live.address, request.live.digest)
        if request.is_refresh:
            return [None, None, False, _live_values(environ, request, live)]
        argv = procfs.argv(pid)
        try:
            env = environ.static(pid)[0]
        except PermissionError:
            return [argv, None, False, None]
        try:
            is_python = is_python_name(procfs.link(pid, "exe").rpartition("/")[2])
        except PermissionError:
            is_python = True
        is_candidate = self._always or is_python or claim_of(env, "") is not None
        is_mapped = is_candidate and (self._always or not is_python) and self._is_mapped(procfs, pid)
        if not self._always and not is_python and not is_mapped:
            return [argv, env, False, None]
        begin, address = inherited.get(request.ppid, (0, None))
        if live is None and address and begin == request.env_start:
            live = LiveEnviron(address)  # a fork keeps its parent's memory map
        values = _live_values(environ, request, live)
        if values is not None:
            inherited[pid] = (request.env_start, values[0])
        return [argv, env, is_mapped, values]

    def _is_mapped(self, procfs: "ProcFs", pid: int) -> bool:
        try:
            maps = procfs.maps(pid)
        except PermissionError:
            return False
        return any(name in maps for name in self._libraries)

    def _checked(self, answer: "Any", before: "LiveEnviron | None") -> "Reading":
        """Raises ValueError."""
        argv, env, is_mapped, live = as_fields(answer, 4)
        reading = Reading(None if argv is None else as_texts(argv), self._variables(env), is_mapped is True)
        if live is not None:
            address, digest, values = as_fields(live, 3)
            reading.live = LiveEnviron(
                None if address is None else as_number(address), None if digest is None else as_number(digest, 2**64)
            )
            reading.live.values = self._variables(values)
            if values is None and before is not None and digest is not None and before.digest == digest:
                reading.live.values = before.values
        return reading

    def _variables(self, values: "Any") -> "dict[str, str] | None":
        if values is None:
            return None
        if not isinstance(values, dict) or not self._names.issuperset(values):
            raise ValueError("invalid answer")
        return {name: as_text(value, LONGEST_VALUE) for name, value in values.items()}


def _files_of(request: "Request") -> "tuple[str, ...]":
    is_located = request.live is not None and request.live.address is not None
    return _FILES_OF_REFRESH if request.is_refresh and is_located else _FILES


def _live_values(environ: "EnvironReader", request: "Request", live: "LiveEnviron | None") -> "list[Any] | None":
    """(address, digest, values or None if the digest is the same) of the live environment; None if it is denied."""
    try:
        live = live or environ.locate(request.pid)
    except PermissionError:
        return None
    values = environ.live(request.pid, live, request.env_start)
    return [live.address, live.digest, values]
