"""The payload of the agent: its modules and pynvml.

Every start sends the preamble, which opens the node's cache folder; the archive is sent where that lacks it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import threading
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...config.model import NodeConfig
from ...config.sections import WatchConfig
from ...records.rows import column_order
from ..wire import PROTOCOL

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
    f"{_AGENT}.gateway.gateway", f"{_AGENT}.gateway.step", f"{_AGENT}.gateway.stream",
)  # fmt: skip
_build_lock = threading.Lock()
#: Bytes that zlib looks back.
_WINDOW = 32 << 10


class Payload(msgspec.Struct, frozen=True):
    """`preamble` goes to STAGE0's standard input, `archive` after the start frame if the node requests it."""

    digest: str  # SHA-256 of the preamble without its header line, which names the archive's: the version of the agent
    preamble: bytes
    archive: bytes
    archive_digest: str


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
    modules = dict(_modules(_AGENT))
    modules["pynvml"] = _pruned_module("pynvml", _NVML_NAME)
    first = {name: modules.pop(name) for name in _FIRST}
    archive = pack(modules)
    return _payload(first, archive)


@cache
def step_preamble() -> bytes:
    """The preamble of a task of a step, deterministic for the same sources."""
    modules = dict(_modules(_AGENT))
    return _payload({name: modules[name] for name in _STEP}, b"").preamble


def _payload(first: Mapping[str, Module], archive: bytes) -> Payload:
    """The payload with these first modules; what it requests is the archive."""
    archive_digest = hashlib.sha256(archive).hexdigest()
    boot = stripped_source(_package_dir(_AGENT).joinpath("agent", "bootstrap.py").read_bytes())
    boot = zlib.compress(boot, 9)
    payload = boot + f"{archive_digest} {len(archive)}\n".encode() + pack(first)
    digest = hashlib.sha256(payload).hexdigest()
    header = f"gconsole {digest} {len(payload)} {len(boot)}\n"
    return Payload(digest, header.encode() + payload, archive, archive_digest)


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


def _modules(package: str) -> Iterator[tuple[str, Module]]:
    """The name and the module of each file of a package."""
    root = _package_dir(package)
    for path in sorted(root.rglob("*.py")):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield name, Module(stripped_source(path.read_bytes()), is_package)


def stripped_source(source: bytes) -> bytes:
    """Source without annotations, docstrings and most comments, same line numbers: saves RSS and transfer."""
    source = _REMARK.sub(b"", _COMMENT.sub(b"", source))
    source = _without_docstrings(source)
    source = _TYPE_IMPORTS.sub(lambda block: b"\n" * block[0].count(b"\n"), source)
    return _HEADER.sub(lambda header: _ANNOTATION.sub(b"", header[0]), source)


def _without_docstrings(source: bytes) -> bytes:
    return _DOCSTRING.sub(lambda text: b":\n" + text[1] + b'""' + b"\n" * (text[0].count(b"\n") - 1), source)


def _pruned_module(module: str, pattern: re.Pattern[bytes]) -> Module:
    """A module from which the node keeps only names that the agent uses."""
    sources = (path.read_bytes() for path in _package_dir(_AGENT).rglob("*.py"))
    using = (source for source in sources if b"nvml" in source.lower())  # the pattern alone takes thrice as long
    names = sorted({name.decode() for source in using for name in pattern.findall(source)})
    return Module(_file(module).read_bytes(), is_package=False, names=tuple(names))


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
