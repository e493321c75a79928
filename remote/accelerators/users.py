"""Processes that use an accelerator: those of AMD's compute driver, and ranks that have its device file open."""

import os
import re

from ..proc.procfs import read_text
from ..proc.settings import listed
from .devices import kfd_nodes, read_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from .devices import SysfsGpu

#: Processes, and open files of one, that are examined.
MOST_PROCESSES, _MOST_FILES = 512, 4096
#: Bytes. No device has so much memory.
_MOST_MEMORY = 1 << 50
_DEVICES = ("/dev/dri/renderD", "/dev/accel", "/dev/vfio/", "/dev/hl")
#: Memory of the device itself in fdinfo: `drm-total-vram0: 4 MiB` (drm-usage-stats.rst; `memory` in older kernels).
_MEMORY = re.compile(r"^drm-(?:total|memory)-(?:vram|local)[0-9]*:\s*([0-9]{1,15})(?: (KiB|MiB))?$", re.M)
_CLIENT = re.compile(r"^drm-client-id:\s*([0-9]{1,19})$", re.M)
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def kfd_users(sys: str, gpus: "Iterable[SysfsGpu]") -> "dict[tuple[str, int], int | None]":
    """(uuid, pid): bytes of memory, as KFD lists them in proc/PID/vram_GPUID (kfd_process.c)."""
    by_address = {gpu.address: gpu for gpu in gpus}
    by_id = {node.gpu_id: by_address[node.address] for node in kfd_nodes(sys) if node.address in by_address}
    root = sys + "/class/kfd/kfd/proc"
    users: "dict[tuple[str, int], int | None]" = {}
    for pid in [name for name in listed(root) if re.match(r"[0-9]{1,7}\Z", name)][:MOST_PROCESSES]:
        for name in listed("%s/%s" % (root, pid)):
            gpu = by_id.get(name[5:]) if name.startswith("vram_") else None
            used = read_count("%s/%s/%s" % (root, pid, name)) if gpu is not None else None
            if gpu is not None and used:
                users[gpu.uuid, int(pid)] = used
    return users


def file_users(proc: str, gpus: "Iterable[SysfsGpu]", pids: "Iterable[int]") -> "dict[tuple[str, int], int | None]":
    """(uuid, pid): bytes of memory of the device, None if its driver does not report them, of processes that use one.

    A process that may not be read uses none, as far as is known.
    """
    by_file = {"/dev/" + name: gpu for gpu in gpus for name in gpu.device_files()}
    users: "dict[tuple[str, int], int | None]" = {}
    for pid in list(pids)[:MOST_PROCESSES]:
        seen: "set[tuple[str, str]]" = set()
        for number in listed("%s/%d/fd" % (proc, pid))[:_MOST_FILES]:
            try:
                path = os.readlink("%s/%d/fd/%s" % (proc, pid, number))
            except OSError:
                continue  # closed meanwhile
            gpu = by_file.get(path) if path.startswith(_DEVICES) else None
            if gpu is None:
                continue
            key = gpu.uuid, pid
            client, size = parse_fdinfo(read_text("%s/%d/fdinfo/%s" % (proc, pid, number)) or "")
            if (gpu.uuid, client) in seen:
                continue  # a duplicate of a file descriptor
            seen.add((gpu.uuid, client))
            before = users.get(key)
            users[key] = size if before is None else before + (size or 0)
    return users


def parse_fdinfo(text: str) -> "tuple[str, int | None]":
    """(id of the client, bytes of the device's memory or None) in the fdinfo of a file of a GPU."""
    client = _CLIENT.search(text[:16384])
    # `total` and the older `memory` name the same
    sizes = {}
    for match in _MEMORY.finditer(text[:16384]):
        name = match.group(0).partition(":")[0].split("-")
        size = int(match.group(1)) * _UNITS[match.group(2) or ""]
        if size < _MOST_MEMORY:
            sizes[name[1], name[2]] = size
    kind = "total" if any(kind == "total" for kind, _ in sizes) else "memory"
    values = [size for (of, _), size in sizes.items() if of == kind]
    return (client.group(1) if client else ""), (sum(values) if values else None)
