"""Collective operations: kind, peers, what must be equal on all ranks, and payload."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from ...records import Collective

#: Bytes of an element, by PyTorch's name of the type.
DTYPE_BYTES: Final[dict[str, int]] = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "UInt16": 2,
    "UInt32": 4, "UInt64": 8, "Long": 8, "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "Float8_e8m0fnu": 1,
}  # fmt: skip

#: Names of the same operation in different libraries and versions.
_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r".*barrier", "barrier"),
    (r"_?all_?gather.*", "all_gather"),
    (r"_?reduce_?scatter.*", "reduce_scatter"),
    (r"_?all_?reduce.*", "all_reduce"),
    (r"_?all_?to_?all.*", "all_to_all"),
    (r"_?broadcast.*", "broadcast"),
    (r"_?reduce(_oop)?", "reduce"),
    (r"gather", "gather"),
    (r"scatter", "scatter"),
    (r"send", "send"),
    (r"recv", "recv"),
)
#: Operations that no rank can leave before all have entered.
BINDING: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_KIND_PATTERNS: Final = [(re.compile(pattern), kind) for pattern, kind in _KINDS]
_PEERS = re.compile(r"(\d{1,9})(->|<-)(\d{1,9})")


class CollectiveOp(msgspec.Struct, frozen=True):
    """`nccl:send 1->2` is backend nccl, name and kind send, from 1 to 2: ranks of the group."""

    backend: str
    name: str
    kind: str  # one name for the same exchange; the name itself where it is unknown
    source: int | None = None
    destination: int | None = None


@lru_cache(maxsize=4096)
def operation(profiling_name: str) -> CollectiveOp:
    """Parse the operation name of a source. Every text is valid."""
    backend, colon, rest = profiling_name.partition(":")
    if not colon:
        backend, rest = "", profiling_name
    name, _, peers = rest.partition(" ")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()  # NCCL writes AllReduce
    kind = next((kind for pattern, kind in _KIND_PATTERNS if pattern.fullmatch(snake)), snake)
    match = _PEERS.fullmatch(peers)
    if match is None or kind not in ("send", "recv"):
        return CollectiveOp(backend, name, kind)
    first, arrow, second = int(match[1]), match[2], int(match[3])
    return CollectiveOp(backend, name, kind, *((first, second) if arrow == "->" else (second, first)))


def moved_numel(entry: Collective) -> int | None:
    """The number of elements that must be equal on every rank of the group; None where it need not or is unknown.

    Gather and scatter have their large tensor on the root only; all_to_all may be uneven by intention.
    """
    kind = operation(entry.profiling_name).kind
    given, made = entry.input_numel, entry.output_numel
    if kind in ("all_reduce", "broadcast", "reduce"):
        return max((numel for numel in (given, made) if numel), default=given)
    if kind in ("reduce_scatter", "gather"):
        return given
    if kind in ("all_gather", "scatter"):
        return made
    return None


def dtypes(entry: Collective) -> tuple[str, ...]:
    """The element types of an operation, each once."""
    return tuple(sorted({*(entry.input_dtypes or ()), *(entry.output_dtypes or ())}))


def payload_bytes(entry: Collective) -> int | None:
    """Input bytes of a rank, output bytes for a receive; None where the source does not report them."""
    if entry.msg_size_bytes is not None:
        return entry.msg_size_bytes
    sides = [(entry.input_numel, entry.input_dtypes), (entry.output_numel, entry.output_dtypes)]
    for numel, types in reversed(sides) if operation(entry.profiling_name).kind == "recv" else sides:
        width = {DTYPE_BYTES.get(name) for name in types or ()}
        if numel is not None and len(width) == 1 and None not in width:
            return numel * (width.pop() or 0)
    return None


def shape_text(entry: Collective) -> str:
    """`[64] Float`: shapes and dtypes for display."""
    sizes = entry.input_sizes or entry.output_sizes
    shapes = ", ".join(str(list(shape)) for shape in (sizes or ())[:4]) or (
        f"{entry.input_numel} elements" if entry.input_numel is not None else "–"
    )
    return f"{shapes} {'/'.join(dtypes(entry))}".strip()
