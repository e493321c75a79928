"""The payload sent at every start: the agent's modules, psutil's Python part and pynvml."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ...config.model import NodeConfig
from ...config.sections import WatchConfig
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
#: A docstring right below the header of a function or class.
_DOCSTRING = re.compile(rb'(?<=:\n)( +)"""(?:[^"\\]|"(?!""))*"""$', re.MULTILINE)
#: Comments on constants and headings of sections; other comments might be lines of a text.
_COMMENT = re.compile(rb"^ *#(?::| --) .*$", re.MULTILINE)
_PSUTIL_MODULES = ("__init__", "_common", "_ntuples", "_pslinux", "_psposix")


class Payload(msgspec.Struct, frozen=True):
    """`preamble` goes to STAGE0's standard input: a header line and the payload."""

    digest: str  # SHA-256 of the payload: the version of the agent
    preamble: bytes


def command(python: str = "python3", run_as: str = "self") -> str:
    """The shell command that starts the agent, visible as gconsole-agent in `ps`.

    -S: nothing of site-packages is needed, and no .pth file there runs in the agent. It starts a seventh faster.
    """
    sudo = "sudo -n -- " if run_as == "sudo" else ""
    return f"exec {sudo}{shlex.quote(python)} -I -S -B -c {shlex.quote(STAGE0)} gconsole-agent"


@cache
def build() -> Payload:
    """The payload of this installation, deterministic for the same sources."""
    modules = dict(_modules(_AGENT))
    modules.update(_modules("psutil", only=_PSUTIL_MODULES))
    modules["pynvml"] = _pruned_module("pynvml", _NVML_NAME)
    boot = stripped_source(_package_dir(_AGENT).joinpath("agent", "bootstrap.py").read_bytes())
    packer = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)  # base64 of compressed sources: nothing repeats in it
    rest = packer.compress(json.dumps(modules, sort_keys=True).encode()) + packer.flush()
    boot = zlib.compress(boot, 9)
    payload = boot + rest
    digest = hashlib.sha256(payload).hexdigest()
    header = f"gconsole {digest} {len(payload)} {len(boot)}\n"
    return Payload(digest, header.encode() + payload)


def _modules(package: str, only: tuple[str, ...] = ()) -> list[tuple[str, list[object]]]:
    """(module name, [sha256 of its source, base64 of its zlib'd source, is it a package]) of a package's modules."""
    root = _package_dir(package)
    modules = []
    for path in sorted(root.rglob("*.py")):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        if only and path.stem not in only:
            continue
        name = ".".join(parts[:-1] if is_package else parts)
        source = path.read_bytes()
        modules.append((name, _module(stripped_source(source) if package == _AGENT else source, is_package)))
    return modules


def stripped_source(source: bytes) -> bytes:
    """Source without annotations, docstrings and comments on constants, same line numbers: saves RSS and transfer."""
    source = _COMMENT.sub(b"", source)
    source = _DOCSTRING.sub(lambda text: text[1] + b'""' + b"\n" * text[0].count(b"\n"), source)
    source = _TYPE_IMPORTS.sub(lambda block: b"\n" * block[0].count(b"\n"), source)
    return _HEADER.sub(lambda header: _ANNOTATION.sub(b"", header[0]), source)


def _module(source: bytes, is_package: bool) -> list[object]:
    # level 9 takes twice the CPU time and saves 0.2 % of the payload
    packed = base64.b64encode(zlib.compress(source, 7)).decode()
    return [hashlib.sha256(source).hexdigest(), packed, is_package]


def _pruned_module(module: str, pattern: re.Pattern[bytes]) -> list[object]:
    """A module from which the node keeps only names that the agent uses; the names are part of its digest."""
    digest, packed, is_package = _module(_file(module).read_bytes(), is_package=False)
    sources = (path.read_bytes() for path in _package_dir(_AGENT).rglob("*.py"))
    using = (source for source in sources if b"nvml" in source.lower())  # the pattern alone takes thrice as long
    names = sorted({name.decode() for source in using for name in pattern.findall(source)})
    digest = hashlib.sha256(f"{digest} {' '.join(names)}".encode()).hexdigest()
    return [digest, packed, is_package, names]


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
    "simulate_gpus",
)  # fmt: skip


def start(
    node: NodeConfig, console_id: str, agent: str, after: int, blobs: Mapping[str, Any], snapshot_period_ms: int = 0,
    *, gpu_clock: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The start frame: identities, the last record received from the node's earlier `agent` (`after`), settings.

    `blobs` offers binaries by name and digest; the agent requests those it lacks. `snapshot_period_ms`: period of clock
    snapshots, 0: none; `gpu_clock`: include GPU timers.
    """
    return {
        "protocol": list(PROTOCOL),
        "console": console_id,
        "label": f"uid {os.getuid()} at {platform.node()}, pid {os.getpid()}",
        "bundle": build().digest,
        "agent": agent,
        "after": after,
        "blobs": dict(blobs),
        "config": {
            **{name: getattr(node.agent, name) for name in _SETTINGS},
            "process_filter": node.process_filter,
            "snapshot_period_ms": snapshot_period_ms,
            "gpu_clock": gpu_clock,
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
