"""`NVRM: Xid` lines of the kernel log: they carry more detail than NVML's events and need no NVML."""

import collections
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    PciAddress = tuple[int, ...]
    XidLine = NamedTuple("XidLine", [("address", "PciAddress | None"), ("number", int), ("words", str)])
else:
    #: One line: `address` is (domain, bus, device), `words` what follows the number.
    XidLine = collections.namedtuple("XidLine", "address number words")

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")


def parse_pci_address(address: str) -> "PciAddress | None":
    """(domain, bus, device) of a PCI address in the kernel's or NVML's notation; None if malformed."""
    try:
        parts = [int(part, 16) for part in address.partition(".")[0].split(":")]
    except ValueError:
        return None
    return tuple(parts) if len(parts) == 3 else None


def parse(line: str) -> "XidLine | None":
    """The XidLine of a log line, or None."""
    match = _XID.search(line)
    if match is None:
        return None
    return XidLine(parse_pci_address(match.group(1)), int(match.group(2)), (match.group(3) or "").strip()[:300])


class KernelLog(object):
    """New XID lines of /dev/kmsg. Where it cannot be read, `reason` is the error and there are none."""

    def __init__(self, path: str) -> None:
        self.reason: "str | None" = None
        self._fd: "int | None" = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.reason = "%s: %s" % (path, error.strerror)
            self.close()

    def xids(self) -> "list[XidLine]":
        """The XidLines since the last call."""
        xid_lines: "list[XidLine]" = []
        while self._fd is not None:
            try:
                data = os.read(self._fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the ring buffer has overtaken the reader: read on at its oldest line
            except OSError as error:
                self.reason = error.strerror
                self.close()
                break
            if not data:
                break
            if b"NVRM" in data:
                lines = (parse(line) for line in data.decode("utf-8", "replace").splitlines())
                xid_lines.extend(line for line in lines if line is not None)
        return xid_lines

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
