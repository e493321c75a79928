"""The kernel's log, read for the driver's `NVRM: Xid` lines: they say more than NVML's event, and come without it."""

import collections
import os
import re

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")

#: One line: `place` is (domain, bus, device) of the PCI address, `words` what follows the number.
XidLine = collections.namedtuple("XidLine", "place number words")


def place_of(address):
    """(domain, bus, device) of a PCI address in the kernel's or NVML's notation; None where it is none."""
    try:
        parts = [int(part, 16) for part in address.partition(".")[0].split(":")]
    except ValueError:
        return None
    return tuple(parts) if len(parts) == 3 else None


def parse(line):
    """The XidLine in a line of the log, or None."""
    match = _XID.search(line)
    if match is None:
        return None
    return XidLine(place_of(match.group(1)), int(match.group(2)), (match.group(3) or "").strip()[:300])


class KernelLog(object):
    """New lines of /dev/kmsg from now on. Where that may not be read, `reason` says why and there are none."""

    def __init__(self, path):
        self.reason = None
        self._fd = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.reason = "%s: %s" % (path, error.strerror)
            self.close()

    def xids(self):
        """The XidLines since the last call."""
        found = []
        while self._fd is not None:
            try:
                data = os.read(self._fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the ring has overtaken the reader: what is left comes next
            except OSError as error:
                self.reason = error.strerror
                self.close()
                break
            if not data:
                break
            if b"NVRM" in data:
                lines = (parse(line) for line in data.decode("utf-8", "replace").splitlines())
                found.extend(line for line in lines if line is not None)
        return found

    def close(self):
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
