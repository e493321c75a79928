"""The payload of the agent: its modules and pynvml.

Every start sends the preamble, which opens the node's cache folder; the archive is sent where that lacks it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...config.model import NodeConfig
from ...config.sections import WatchConfig
from ...records.rows import column_order
from ...transport import errors
from ..wire import PROTOCOL
from . import archive_digests
from .archive_digests import ArchiveName

#: Runs on any `python3`, and on 2.7 up to the version check. hashlib is the last choice: it loads OpenSSL, 4 MB of RSS.
STAGE0 = (
    "import sys,zlib;"
    "v=sys.version_info;"
    'v<(3,6) and sys.exit("gconsole: python_too_old %d.%d"%v[:2]);'
    "from importlib.util import find_spec as f;"
    'm=next(x for x in ("_sha2","_sha256","hashlib") if f(x));'
    "i=sys.stdin.buffer;"
    "h=i.readline().split();"
    "b=i.read(int(h[2]));"
    "n=int(h[3]);"
    '__import__(m).sha256(b).hexdigest()==h[1].decode() or sys.exit("gconsole: bundle_rejected");'
    "exec(zlib.decompress(b[:n]));"
    "boot(i,b[n:])"
)

#: Seconds between two stack samples of a rank at most, and samples that are taken within `stall_s`.
MOST_PLACE_S, PLACES_PER_STALL = 10.0, 4.0
_AGENT = "gconsole_remote"
#: Candidate names of pynvml.
_NVML_NAME = re.compile(rb"\b_?(?:c_)?(?:nvml|NVML)\w+")
#: A function header, one annotation in it, and the TYPE_CHECKING import block.
_HEADER = re.compile(rb"^ *def .*?:\n", re.MULTILINE | re.DOTALL)
_ANNOTATION = re.compile(rb"(?<=\w): (?:\"[^\"\n]*\"|\w+)(?=[,)\s])|(?<=\)) -> [^\n]*(?=:\n)")
_TYPE_IMPORTS = re.compile(
    rb"^TYPE_CHECKING = False\nif TYPE_CHECKING:\n(?:(?: {4}.*)?\n)+(?!else)(?=\S)", re.MULTILINE
)
#: A docstring right below the header of a function or class. This and `_REMARK` begin with a text, which is searched
#: for five times as fast as a lookbehind.
_DOCSTRING = re.compile(rb':\n( +)"""[^"\\]*(?:"(?!"")[^"\\]*)*"""$', re.MULTILINE)
#: Comments on constants and headings of sections; other comments might be lines of a text.
_COMMENT = re.compile(rb"^ *#(?::| --) .*$", re.MULTILINE)
#: A comment behind a statement; one with a quotation mark might be the end of a text.
_REMARK = re.compile(rb"  # (?<=\S  # )[^\n\"']*$", re.MULTILINE)
#: Modules that find the others in the cache folder, or request them.
_FIRST = (_AGENT, f"{_AGENT}.agent", f"{_AGENT}.agent.cache", f"{_AGENT}.agent.start_agent")
#: All modules of a task of a step; it sends no request, because the bytes of the answer would reach all tasks.
_STEP = (
    *_FIRST, f"{_AGENT}.agent.cache_users", f"{_AGENT}.agent.wire", f"{_AGENT}.gateway", f"{_AGENT}.gateway.frames",
    f"{_AGENT}.gateway.endings", f"{_AGENT}.gateway.gateway", f"{_AGENT}.gateway.step", f"{_AGENT}.gateway.stream",
)  # fmt: skip
_build_lock = threading.Lock()
#: Bytes that zlib looks back.
_WINDOW = 32 << 10


@dataclasses.dataclass(frozen=True)
class Payload:
    """`preamble` goes to STAGE0's standard input, `archive` after the start frame if the node requests it."""

    digest: str  # SHA-256 of the preamble without its header line, which names the archive's: the version of the agent
    preamble: bytes
    archive_digest: str
    pack_archive: Callable[[], bytes]

    @cached_property
    def archive(self) -> bytes:
        """The modules that the preamble lacks, packed when first needed. Raises AgentCrashed."""
        return self.pack_archive()


def command(python: str = "python3", run_as: str = "self") -> str:
    """The shell command that starts the agent, visible as gconsole-agent in `ps`.

    -S: nothing of site-packages is needed, and no .pth file there runs in the agent. It starts a seventh faster.
    """
    sudo = "sudo -n -- " if run_as == "sudo" else ""
    return f"exec {sudo}{shlex.quote(python)} -I -S -B -c {shlex.quote(STAGE0)} gconsole-agent"


def build() -> Payload:
    """The payload of this installation, deterministic for the same sources. A thread may build it ahead."""
    with _build_lock:
        return _built()


@cache
def _built() -> Payload:
    sources = _Sources()
    remembered = archive_digests.remembered(sources.key)
    if remembered is not None:
        return _payload(sources, _FIRST, remembered, lambda: _packed_again(sources, remembered))
    archive = sources.archive()
    archive_digests.remember(sources.key, _name_of(archive))
    return _payload(sources, _FIRST, _name_of(archive), lambda: archive)


@cache
def step_preamble() -> bytes:
    """The preamble of a task of a step, deterministic for the same sources."""
    return _payload(_Sources(), _STEP, _name_of(b""), lambda: b"").preamble


def _payload(
    sources: _Sources, first: Sequence[str], archive: ArchiveName, pack_archive: Callable[[], bytes]
) -> Payload:
    """The payload with these modules in its preamble; what it requests is the archive."""
    boot = zlib.compress(stripped_source(sources.files[f"{_AGENT}.agent.bootstrap"].content), 9)
    payload = boot + f"{archive.digest} {archive.size}\n".encode() + pack(sources.modules(first))
    digest = hashlib.sha256(payload).hexdigest()
    header = f"gconsole {digest} {len(payload)} {len(boot)}\n"
    return Payload(digest, header.encode() + payload, archive.digest, pack_archive)


def _name_of(archive: bytes) -> ArchiveName:
    return ArchiveName(hashlib.sha256(archive).hexdigest(), len(archive))


def _packed_again(sources: _Sources, name: ArchiveName) -> bytes:
    """The archive with the remembered name. Raises AgentCrashed if the name is not that of these sources."""
    archive = sources.archive()
    if _name_of(archive) != name:
        archive_digests.forget(sources.key)
        _built.cache_clear()
        raise errors.AgentCrashed(
            f"{archive_digests.path()} had a wrong digest of the agent's modules",
            "no action needed: the next attempt packs them again",
        )
    return archive


class _Sources:
    """The agent's modules and pynvml as they are on the disk when the console starts, whatever is installed later."""

    def __init__(self) -> None:
        self.files = dict(_source_files(_AGENT))
        self._nvml = _file("pynvml").read_bytes()
        self.key = self._fingerprint()

    def modules(self, names: Iterable[str]) -> dict[str, Module]:
        """The stripped modules of these names."""
        return {name: Module(stripped_source(self.files[name].content), self.files[name].is_package) for name in names}

    def archive(self) -> bytes:
        """All modules but the first, packed."""
        modules = self.modules(name for name in self.files if name not in _FIRST)
        modules["pynvml"] = self._pruned_nvml()
        return pack(modules)

    def _fingerprint(self) -> str:
        """SHA-256 of all that decides the bytes of the archive: sources, this packer, Python and zlib."""
        digest = hashlib.sha256(f"{sys.version} {zlib.ZLIB_RUNTIME_VERSION}".encode())
        for name, content in [("", Path(__file__).read_bytes()), ("pynvml", self._nvml), *self._contents()]:
            digest.update(f"\0{name} {len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        return ((name, file.content) for name, file in self.files.items())

    def _pruned_nvml(self) -> Module:
        """The module pynvml, from which the node keeps only names that the agent uses."""
        using = (source for _, source in self._contents() if b"nvml" in source.lower())  # thrice as fast as without
        names = sorted({name.decode() for source in using for name in _NVML_NAME.findall(source)})
        return Module(self._nvml, is_package=False, names=tuple(names))


class Module(NamedTuple):
    """One module of an archive; `names`: those that the agent uses of it, if the node keeps only them."""

    source: bytes
    is_package: bool
    names: tuple[str, ...] = ()

    def digest(self) -> str:
        """128 bits of the SHA-256 of what the node makes of it, in hex digits."""
        text = self.source + b"\0" + " ".join(self.names).encode() if self.names else self.source
        return hashlib.sha256(text).hexdigest()[:32]


def pack(modules: Mapping[str, Module]) -> bytes:
    """An archive: the length of its index, the index, zlib's preset dictionary, and each module's zlib'd source.

    Each module can be unpacked alone. The small ones are the dictionary of all: this saves a seventh.
    """
    names = sorted(modules)
    by_size = sorted(names, key=lambda name: len(modules[name].source))
    dictionary = b"".join(modules[name].source for name in by_size)[:_WINDOW] if len(names) > 1 else b""
    index, parts = [], [zlib.compress(dictionary, 7)]
    primed = zlib.compressobj(5, zdict=dictionary)  # level 7 saves 2 % and takes 20 ms at every start
    for name in names:
        module = modules[name]
        packer = primed.copy()
        parts.append(packer.compress(module.source) + packer.flush())
        index.append([name, module.digest(), len(parts[-1]), module.is_package, module.names])
    packed_index = zlib.compress(json.dumps({"dictionary": len(parts[0]), "modules": index}).encode(), 7)
    return b"".join([b"%d\n" % len(packed_index), packed_index, *parts])


class _SourceFile(NamedTuple):
    content: bytes
    is_package: bool


def _source_files(package: str) -> Iterator[tuple[str, _SourceFile]]:
    """The name and the file of each module of a package."""
    root = _package_dir(package)
    for path in sorted(root.rglob("*.py")):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield name, _SourceFile(path.read_bytes(), is_package)


def stripped_source(source: bytes) -> bytes:
    """Source without annotations, docstrings and most comments, same line numbers: saves RSS and transfer."""
    source = _REMARK.sub(b"", _COMMENT.sub(b"", source))
    source = _without_docstrings(source)
    source = _TYPE_IMPORTS.sub(lambda block: b"\n" * block[0].count(b"\n"), source)
    return _HEADER.sub(lambda header: _ANNOTATION.sub(b"", header[0]), source)


def _without_docstrings(source: bytes) -> bytes:
    return _DOCSTRING.sub(lambda text: b":\n" + text[1] + b'""' + b"\n" * (text[0].count(b"\n") - 1), source)


def _file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        raise ModuleNotFoundError(f"{module} is not installed beside gconsole")
    return Path(spec.origin)


def _package_dir(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed beside gconsole")
    return Path(next(iter(spec.submodule_search_locations)))


#: Bytes of a binary per frame: small enough that records and responses interleave.
_CHUNK = 96 << 10
#: Keys of [agent] that the agent itself reads.
_SETTINGS = (
    "sample_interval_ms", "linger_s", "orphan_s", "buffer_bytes", "cpu_budget_pct", "cache_dir", "ephemeral",
    "simulate_gpus", "allow_eval",
)  # fmt: skip


def start(
    node: NodeConfig, console_id: str, agent: str, after: int, snapshot_period_ms: int = 0,
    *, gpu_clock: bool = False, jobs_only: bool = False, tick_offset_s: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """The start frame: identities, the last record received from the node's earlier `agent` (`after`), settings.

    `snapshot_period_ms`: period of clock snapshots, 0: none; `gpu_clock`: include GPU timers;
    `jobs_only`: sample only what the plan of a job needs; `tick_offset_s`: when in each second it samples.
    """
    return {
        "protocol": list(PROTOCOL),
        "console": console_id,
        "label": f"uid {os.getuid()} at {platform.node()}, pid {os.getpid()}",
        "bundle": build().digest,
        "agent": agent,
        "after": after,
        "config": {
            **{name: getattr(node.agent, name) for name in _SETTINGS},
            "process_filter": node.process_filter,
            "snapshot_period_ms": snapshot_period_ms,
            "gpu_clock": gpu_clock,
            "jobs_only": jobs_only,
            "tick_offset_s": tick_offset_s,
            "rows": column_order() if node.agent.wire == "rows" else None,
            **watch_settings(node.watch),
        },
    }


def place_every_s(watch: WatchConfig) -> float:
    """Seconds between two stack samples of a rank: several within `stall_s`; 0.0 where none are taken."""
    if not watch.sample_stacks:
        return 0.0
    return min(MOST_PLACE_S, max(1.0, watch.stall_s / PLACES_PER_STALL)) if watch.stall_s else MOST_PLACE_S


def watch_settings(watch: WatchConfig) -> dict[str, Any]:
    """What an agent needs of `[watch]`, in the start frame and whenever it changes."""
    return {"watch_locals": list(watch.locals), "watch_every_s": watch.every_s, "watch_place_s": place_every_s(watch)}


def blob_chunks(name: str, encoding: str, packed: bytes) -> Iterator[dict[str, Any]]:
    """The frames of one binary."""
    for offset in range(0, len(packed), _CHUNK):
        chunk = base64.b64encode(packed[offset : offset + _CHUNK]).decode()
        yield {"blob": name, "at": offset, "encoding": encoding, "data": chunk, "end": offset + _CHUNK >= len(packed)}
