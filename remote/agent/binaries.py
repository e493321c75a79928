"""The binaries that the agent uses (py-spy): from the cache, or sent by the console."""

import binascii
import os
import threading
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields
    from .agent import Agent
    from .blob_writer import BlobWriter
    from .cache import Cache

PY_SPY = "py-spy"


class BinaryStore(object):
    """The binaries of this node by name."""

    def __init__(self, place: "Cache") -> None:
        self._place = place
        self._arch = os.uname().machine
        self._changed = threading.Condition()
        self._digests: dict[str, str | None] = {}
        self._paths: dict[str, str] = {}
        self._problems: dict[str, str] = {}  # name -> why it is not available
        self._incoming: dict[str, tuple[BlobWriter, Any]] = {}  # name -> (writer, inflater)

    def offer(self, name: str, by_arch: "dict[str, str]") -> None:
        """Register an offer, {arch: sha256}, and check the cache; a failed binary may be sent again."""
        digest = by_arch.get(self._arch)
        self._digests[name] = digest
        self._problems.pop(name, None)
        if digest is None:
            self._settle(name, problem="the console has no %s for %s; run there: gconsole bundle" % (name, self._arch))
            return
        path = self._place.find(digest)
        if path:
            self._settle(name, path=path)

    def wanted(self) -> "list[str]":
        """Names of the offered binaries that this node lacks."""
        return sorted(n for n in self._digests if n not in self._paths and n not in self._problems)

    def path(self, name: str) -> "str | None":
        """The path of a binary, or None."""
        return self._paths.get(name)

    def problem(self, name: str) -> "str | None":
        """Why a binary is not available, or None."""
        return self._problems.get(name)

    def receive(self, agent: "Agent", frame: "Fields") -> None:
        """Store one chunk, {"blob": name, "at": offset, "encoding": "zlib"|"xz", "data": base64, "end": is last}.

        The chunk at 0 restarts a binary that an earlier connection left incomplete. {"blob": name, "problem": text}
        reports that the console cannot send it.
        """
        name = frame["blob"]
        if name not in self.wanted():
            return
        try:
            self._store(name, frame)
        except Exception as error:  # noqa: BLE001 - a damaged stream raises many types
            self._drop(name)
            self._settle(name, problem="%s could not be stored: %s" % (name, error))
            agent.miss(name, self._problems[name], "free some disk space, or set [agent] cache_dir")

    def _store(self, name: str, frame: "Fields") -> None:
        if "problem" in frame:
            self._settle(name, problem=frame["problem"])
            return
        if frame["at"] == 0:
            self._drop(name)
            self._incoming[name] = (self._place.writer(self._digests[name] or ""), _inflater(frame["encoding"]))
        if name not in self._incoming:
            return  # its first chunk came on another connection
        writer, inflater = self._incoming[name]
        writer.write(inflater.decompress(binascii.a2b_base64(frame["data"])))
        if frame.get("end"):
            path = writer.finish()
            del self._incoming[name]
            self._settle(name, path=path)

    def _drop(self, name: str) -> None:
        """Delete an incomplete binary."""
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
        """Wait until a binary is available or failed."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while name not in self._paths and name not in self._problems:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def close(self) -> None:
        """Delete incomplete binaries."""
        for name in list(self._incoming):
            self._drop(name)


def _inflater(encoding: str) -> "Any":
    if encoding == "xz":
        import lzma  # missing in some Pythons, whose hello requests zlib

        return lzma.LZMADecompressor()
    return zlib.decompressobj()
