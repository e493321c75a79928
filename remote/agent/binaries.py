"""The two binaries the agent can use, psutil's extension and py-spy: found in the cache, or sent by the console."""

import base64
import os
import threading
import time
import zlib

from ..samplers.base import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields
    from .agent import Agent
    from .bootstrap import BundleImporter
    from .cache import BlobWriter, Cache

PSUTIL, PY_SPY = "psutil", "py-spy"
_EXTENSION = "psutil._psutil_linux"


class Blobs(object):
    """`offered` maps a blob's name to {arch: sha256}: what the console can send to a node of that architecture."""

    def __init__(self, place: "Cache", importer: "BundleImporter", offered: "dict[str, dict[str, str]]") -> None:
        self._place = place
        self._importer = importer
        self._arch = os.uname().machine
        self._changed = threading.Condition()
        self._digests: dict[str, str | None] = {}
        self._paths: dict[str, str] = {}
        self._problems: dict[str, str] = {}  # name -> why it will not come
        self._incoming: dict[str, tuple[BlobWriter, Any]] = {}  # name -> (writer, inflater)
        for name, by_arch in offered.items():
            self.offer(name, by_arch)

    def offer(self, name: str, by_arch: "dict[str, str]") -> None:
        """The console can send this binary, {arch: sha256}; look whether it is here. What failed may be tried again."""
        digest = by_arch.get(self._arch)
        self._digests[name] = digest
        self._problems.pop(name, None)
        if digest is None:
            self._settle(name, problem="the console has no %s for %s (there: gconsole bundle)" % (name, self._arch))
            return
        path = self._place.find(digest)
        if path:
            self._settle(name, path=path)

    def wanted(self) -> "list[str]":
        """Names of the offered blobs that this node does not have yet."""
        return sorted(n for n in self._digests if n not in self._paths and n not in self._problems)

    def path(self, name: str) -> "str | None":
        """Where the binary lies, or None."""
        return self._paths.get(name)

    def problem(self, name: str) -> "str | None":
        """Why the binary is not here and will not come, or None."""
        return self._problems.get(name)

    def receive(self, agent: "Agent", frame: "Fields") -> None:
        """Take one piece, {"blob": name, "at": offset, "encoding": "zlib"|"xz", "data": base64, "end": is it the last}.

        The piece at 0 begins anew: a connection that broke may have left half a binary. Instead of pieces there may be
        {"blob": name, "problem": text}.
        """
        name = frame["blob"]
        if name not in self.wanted():
            return
        try:
            self._take(name, frame)
        except Exception as error:  # noqa: BLE001 - a damaged stream raises what it likes (lzma has a type of its own)
            self._drop(name)
            self._settle(name, problem="%s could not be kept: %s" % (name, error))
            agent.miss(name, self._problems[name], "free some space, or name another place: [agent] cache_dir")

    def _take(self, name: str, frame: "Fields") -> None:
        if "problem" in frame:
            self._settle(name, problem=frame["problem"])
            return
        if frame["at"] == 0:
            self._drop(name)
            self._incoming[name] = (self._place.writer(self._digests[name] or ""), _inflater(frame["encoding"]))
        if name not in self._incoming:
            return  # the rest of one that was begun on another connection
        writer, inflater = self._incoming[name]
        writer.write(inflater.decompress(base64.b64decode(frame["data"])))
        if frame.get("end"):
            path = writer.finish()
            del self._incoming[name]
            self._settle(name, path=path)

    def _drop(self, name: str) -> None:
        """Leave nothing of a binary that arrived only in part."""
        if name in self._incoming:
            self._incoming.pop(name)[0].abandon()

    def _settle(self, name: str, path: "str | None" = None, problem: str = "") -> None:
        with self._changed:
            if path:
                self._paths[name] = path
            else:
                self._problems[name] = problem
            self._changed.notify_all()

    def wait(self, name: str, timeout_s: float) -> None:
        """Wait until the blob is here or known not to come."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while name not in self._paths and name not in self._problems:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def import_psutil(self, timeout_s: float) -> "Any":
        """The psutil module, its extension loaded from the blob. Raises Unavailable."""
        self.wait(PSUTIL, timeout_s)
        path = self.path(PSUTIL)
        if path is None:
            reason = self.problem(PSUTIL) or "psutil did not arrive within %g s" % timeout_s
            raise Unavailable(reason, "gconsole bundle")
        self._importer.extensions[_EXTENSION] = path
        try:
            import psutil
        except Exception as error:  # noqa: BLE001 - another libc, a kernel that forbids it, a /proc it does not understand
            raise Unavailable("psutil cannot be loaded here: %s" % error)
        return psutil

    def close(self) -> None:
        """Drop what arrived only in part."""
        for name in list(self._incoming):
            self._drop(name)


def _inflater(encoding: str) -> "Any":
    if encoding == "xz":
        import lzma  # not in every Python: the hello of such a node asks for zlib

        return lzma.LZMADecompressor()
    return zlib.decompressobj()
