"""Last words: what ranks and launchers wrote at the end, as `output` records when one of them ends.

Their files are opened while they live, because /proc/PID/fd is empty afterwards, and read only when a process of the
job on this node has ended, or on request. Nothing is read in between.
"""

import os
import re

from ..proc.output_files import (
    MOST_NAMES,
    SHARED_TAIL_BYTES,
    TAIL_BYTES,
    NoOutput,
    OutputFiles,
    open_folder,
    readers_of_pipes,
)  # fmt: skip
from ..proc.procfs import ProcFs, printable
from ..proc.user_files import RightsOf, names_in
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from ..proc.exits import ExitWatch
    from ..proc.output_files import OutputFile
    from .base import Context, Fact, Fields, ProcessKey
    from .process_snapshot import WriterRef

#: Seconds between two ticks.
EVERY_S = 0.5
#: Seconds after the end of a process of the job at which its files are compared with what was sent.
CHECKS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
#: Seconds after which the living ranks of a job are read in which one has failed: their own errors follow by then.
LIVING_S = 2.0
#: Open files at most; a reader of a pipe with more open files than `MOST_OF_READER` is not the log of one job.
MOST_FILES, MOST_OF_READER = 256, 8
#: Earlier attempts of torchrun whose log folders are read.
MOST_EARLIER = 3
STREAMS = ((2, "stderr"), (1, "stdout"))
_ATTEMPT = re.compile(r"^(?P<run>/.*)/attempt_(?P<attempt>[0-9]{1,6})/(?P<local>[0-9]{1,6})/error\.json$")
_FILES_OF_RANK = (("error.json", "error_file"), ("stderr.log", "stderr"), ("stdout.log", "stdout"))
_DENIED = 'read as root (run_as = "sudo"), or log in as the user of the job'


class _Writer(object):
    """One rank, launcher or reader of a pipe. `streams`: (stream, file or None, reason, remedy)."""

    def __init__(self, ref: "WriterRef") -> None:
        self.ref = ref
        self.key = (ref.pid, ref.start_ticks)
        self.streams: "list[tuple[str, OutputFile | None, str | None, str]]" = []
        self.folder: "int | None" = None  # of the error file
        self.user = RightsOf(None)  # as whom files are opened; known while the process lives
        self.ended_s: "float | None" = None
        self.is_described = False  # what is not readable was sent


class OutputSampler(Sampler):
    """`output` records of the processes in `context.shared["writers"]`."""

    name = "outputs"

    def __init__(self, context: "Context") -> None:
        super(OutputSampler, self).__init__(context)
        self._procfs = ProcFs(context.proc)
        self._files = OutputFiles(min(MOST_FILES, int(os.sysconf("SC_OPEN_MAX")) // 4))
        self._writers: "dict[ProcessKey, _Writer]" = {}
        self._refs: "object" = None  # the value of shared["writers"] that was used last
        self._checks: "dict[str, list[float]]" = {}  # job: when to compare its files, monotonic
        self._living: "dict[str, float]" = {}  # job: when to read its living ranks
        self._earlier: "set[str]" = set()  # attempt folders that were read or belong to ranks seen

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks: short, so that files of short-lived processes are opened in time."""
        return EVERY_S

    def tick(self, now: float) -> "Iterator[Fact]":
        """Open the files of new processes; send the outputs of jobs in which one has ended."""
        refs = self.context.shared.get("writers", ())
        if refs is not self._refs:
            self._refs = refs
            for ref in refs:
                if (ref.pid, ref.start_ticks) in self._writers:  # a launcher, now of another attempt
                    self._writers[(ref.pid, ref.start_ticks)].ref = ref
            for fact in self._add([ref for ref in refs if (ref.pid, ref.start_ticks) not in self._writers]):
                yield fact
        for job in self._ended(refs, now):
            self._checks[job] = [now + check_s for check_s in CHECKS_S]
        wanted = self.context.shared.pop("outputs_wanted", None)
        for job in {writer.ref.job for writer in self._writers.values()} if wanted is not None else ():
            if job in wanted:
                self._living[job] = now
        for fact in self._due(now):
            yield fact

    def stop(self) -> None:
        """Close all files."""
        for key in list(self._writers):
            self._remove(key)

    # -- processes ------------------------------------------------------------------------------------------------

    def _add(self, refs: "list[WriterRef]") -> "Iterator[Fact]":
        pipes: "dict[str, list[tuple[_Writer, int]]]" = {}
        for ref in refs:
            writer = self._writers[(ref.pid, ref.start_ticks)] = _Writer(ref)
            self._open(writer, pipes)
        if pipes:
            for inode, (pid, numbers) in readers_of_pipes(self._procfs, set(pipes)).items():
                self._add_reader(pipes[inode], pid, numbers)
        for ref in refs:
            if ref.error_file:
                for fact in self._earlier_attempts(ref):
                    yield fact

    def _open(self, writer: "_Writer", pipes: "dict[str, list[tuple[_Writer, int]]]") -> None:
        ref = writer.ref
        for number, stream in STREAMS:
            file, reason, try_ = None, None, ""
            try:
                file = self._files.of_descriptor(self._procfs, ref.pid, number)
                file.users.add(writer.key)
                if file in [each[1] for each in writer.streams]:
                    continue  # both streams are one file
            except NoOutput as error:
                reason, try_ = error.text, error.try_
                if error.pipe:
                    pipes.setdefault(error.pipe, []).append((writer, len(writer.streams)))
            except PermissionError:
                reason, try_ = "no permission", _DENIED
            except (OSError, ValueError, IndexError):
                continue  # closed, or gone
            writer.streams.append((stream, file, reason, try_))
        if ref.error_file:
            try:
                writer.user = RightsOf.of_process(self._procfs, ref.pid)
                writer.folder = open_folder(self._procfs, ref.pid, os.path.dirname(ref.error_file), writer.user)
            except (OSError, KeyError, ValueError):
                pass  # not there, or not readable
            self._earlier.add(os.path.dirname(ref.error_file))

    def _add_reader(self, writers: "list[tuple[_Writer, int]]", pid: int, numbers: "list[str]") -> None:
        """Note who reads a pipe, and follow the files that it writes."""
        try:
            stat = self._procfs.stat(pid)
        except (OSError, ValueError, IndexError):
            return
        files = []
        for number in numbers[:64]:
            try:
                file = self._files.of_descriptor(self._procfs, pid, number, (os.O_WRONLY,))
            except (NoOutput, OSError, ValueError, IndexError):
                continue
            file.users.add((pid, stat.start_ticks))
            files.append(file)
        where = "a pipe; its reader is pid %d (%s)" % (pid, printable(stat.comm, 16))
        if len({id(file) for file in files}) > MOST_OF_READER:
            for file in files:
                self._files.release(file, (pid, stat.start_ticks))
            files = []
        for writer, index in writers:
            reason = where + "".join(", which writes %s" % file.path[:256] for file in files[:1])
            writer.streams[index] = (writer.streams[index][0], None, reason, "")
            for file in files:
                file.users.add(writer.key)
                if file not in [each[1] for each in writer.streams]:
                    writer.streams.append(("file", file, None, ""))

    def _ended(self, refs: "Iterable[WriterRef]", now: float) -> "set[str]":
        """The jobs in which a process has ended since the last tick."""
        exits: "ExitWatch | None" = self.context.shared.get("exits")
        ends = exits.ends if exits is not None else {}
        alive = {(ref.pid, ref.start_ticks) for ref in refs}
        jobs = set()
        for key, writer in self._writers.items():
            if writer.ended_s is None and (key not in alive or key in ends):
                writer.ended_s = now
                jobs.add(writer.ref.job)
                end = ends.get(key)
                if writer.ref.rank is not None and (end is None or end.exit_code != 0):
                    self._living.setdefault(writer.ref.job, now + LIVING_S)
        return jobs

    def _remove(self, key: "ProcessKey") -> None:
        writer = self._writers.pop(key)
        for file in {id(each[1]): each[1] for each in writer.streams if each[1] is not None}.values():
            self._files.release(file, key)
        if writer.folder is not None:
            os.close(writer.folder)

    # -- records --------------------------------------------------------------------------------------------------

    def _due(self, now: float) -> "Iterator[Fact]":
        living = {job for job, due_s in self._living.items() if due_s <= now}
        for job in living:
            del self._living[job]
        checked = {job for job, times in self._checks.items() if times[0] <= now}
        if not living and not checked:
            return
        for writer in list(self._writers.values()):
            job = writer.ref.job
            if job in living or (job in checked and (writer.ended_s is not None or writer.ref.rank is None)):
                for fact in self._outputs(writer):
                    yield fact
        for job in checked:
            times = self._checks[job] = [due_s for due_s in self._checks[job] if due_s > now]
            if not times:
                del self._checks[job]
                for key, writer in list(self._writers.items()):
                    if writer.ref.job == job and writer.ended_s is not None:
                        self._remove(key)

    def _outputs(self, writer: "_Writer") -> "Iterator[Fact]":
        for stream, file, reason, try_ in list(writer.streams):
            if file is None:
                if not writer.is_described:
                    yield "output", dict(_fields(writer.ref, stream), status="unreadable", reason=reason, try_=try_)
                continue
            others = file.users - {writer.key}
            if others and not writer.is_described and stream != "file" and writer.ref.rank is not None:
                shared = "shared with %d other processes; see its own record" % len(others)
                yield "output", dict(_fields(writer.ref, stream), path=file.path, reason=shared)
            for fact in self._text(writer.ref, file, "file" if others else stream):
                yield fact
        writer.is_described = True
        if writer.folder is not None and writer.ended_s is not None:
            for fact in self._error_file(writer):
                yield fact

    def _error_file(self, writer: "_Writer") -> "Iterator[Fact]":
        path = writer.ref.error_file or ""
        assert writer.folder is not None
        if any(stream == "error_file" for stream, _, _, _ in writer.streams):
            return
        try:
            with writer.user:
                file = self._files.of_path(writer.folder, os.path.basename(path), path, writer.ref.uid)
        except NoOutput as error:
            writer.streams.append(("error_file", None, error.text, error.try_))
            yield "output", dict(_fields(writer.ref, "error_file"), path=path, status="unreadable", reason=error.text)
            return
        except OSError:
            return  # it has not been written
        file.users.add(writer.key)
        writer.streams.append(("error_file", file, None, ""))
        for fact in self._text(writer.ref, file, "error_file"):
            yield fact

    def _text(self, ref: "WriterRef", file: "OutputFile", stream: str) -> "Iterator[Fact]":
        """The record of a file, if it has changed since the last one."""
        fields = dict(_fields(ref, stream), path=file.path)
        try:
            size, changed_ns = file.state()
            if size == file.sent:
                return
            is_shared = stream == "file"
            text = file.tail(size, SHARED_TAIL_BYTES if is_shared else TAIL_BYTES)
        except OSError as error:
            if file.sent is None:
                yield "output", dict(fields, status="unreadable", reason=error.strerror)
            file.sent = -1
            return
        file.sent = size
        if is_shared:
            fields.update(self._owner_of(file, ref))
        yield "output", dict(fields, text=text, size=size, written_at=changed_ns)

    def _owner_of(self, file: "OutputFile", ref: "WriterRef") -> "Fields":
        """Whose a shared output is: that of a launcher, and of a rank if only one writes it. Same for each of them."""
        users = [self._writers[key].ref for key in sorted(file.users) if key in self._writers] or [ref]
        ranks = {user.rank for user in users if user.rank is not None}
        first = next((user for user in users if user.rank is None), users[0])
        count = len(file.users)
        return {
            "attempt": max(user.attempt for user in users),
            "rank": ranks.pop() if len(ranks) == 1 else None,
            "pid": first.pid,
            "start_ticks": first.start_ticks,
            "reason": "%d processes share it" % count if count > 1 else None,
        }

    # -- what was there before ------------------------------------------------------------------------------------

    def _earlier_attempts(self, ref: "WriterRef") -> "Iterator[Fact]":
        """Outputs of earlier attempts in torchrun's log folder, of ranks that ended before the agent came."""
        match = _ATTEMPT.match(ref.error_file or "")
        if match is None or len(match.group("attempt")) > 6:
            return
        newest = int(match.group("attempt"))
        for attempt in range(max(0, newest - MOST_EARLIER), newest):
            for fact in self._of_attempt(ref, "%s/attempt_%d" % (match.group("run"), attempt), attempt):
                yield fact

    def _of_attempt(self, ref: "WriterRef", path: str, attempt: int) -> "Iterator[Fact]":
        try:
            user = RightsOf.of_process(self._procfs, ref.pid)
            numbers = names_in(self._procfs, ref.pid, path, MOST_NAMES)
        except (OSError, KeyError, ValueError):
            return
        for number in sorted(numbers, key=len)[:1024]:
            place = "%s/%s" % (path, number)
            if not re.match(r"^[0-9]{1,6}$", number) or place in self._earlier:
                continue
            self._earlier.add(place)
            try:
                folder = open_folder(self._procfs, ref.pid, place, user)
            except OSError:
                continue
            try:
                for fact in self._in_folder(ref, folder, user, place, attempt, int(number)):
                    yield fact
            finally:
                os.close(folder)

    def _in_folder(
        self, ref: "WriterRef", folder: int, user: "RightsOf", place: str, attempt: int, local_rank: int
    ) -> "Iterator[Fact]":
        for name, stream in _FILES_OF_RANK:
            path = "%s/%s" % (place, name)
            try:
                with user:
                    file = self._files.of_path(folder, name, path, ref.uid)
            except (NoOutput, OSError):
                continue
            is_kept = bool(file.users)
            try:
                size, changed_ns = file.state()
                fields = dict(_fields(ref, stream), attempt=attempt, rank=_rank_at(ref, local_rank), path=path)
                if size:
                    yield "output", dict(fields, text=file.tail(size, TAIL_BYTES), size=size, written_at=changed_ns)
            except OSError:
                pass
            if not is_kept:
                self._files.release(file, (0, 0))


def _rank_at(ref: "WriterRef", local_rank: int) -> "int | None":
    """The global rank of a local one, if the job has one node: the order of nodes may change with a restart."""
    if ref.world_size is not None and ref.world_size == ref.local_world_size:
        return local_rank
    return None


def _fields(ref: "WriterRef", stream: str) -> "Fields":
    return {
        "job": ref.job, "attempt": ref.attempt, "rank": ref.rank, "pid": ref.pid, "start_ticks": ref.start_ticks,
        "stream": stream, "path": None, "status": "ok", "reason": None, "try_": "", "text": None, "size": None,
        "written_at": None,
    }  # fmt: skip
