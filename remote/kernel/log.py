"""The kernel log, as /dev/kmsg has it: `priority,number,µs since boot,flags;text` and lines that continue it.

Root, and journald where it forwards the log of all users to it, may write there too. The kernel gives such messages a
facility (priority >> 3) other than 0, its own, whatever their text is (devkmsg_write in kernel/printk/printk.c).
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: Bytes that one call reads at most: the ring buffer is smaller.
MAX_BYTES = 16 << 20


class KernelLog(object):
    """New messages of /dev/kmsg; from its oldest on with `is_whole`. `reason` is the error where it cannot be read."""

    def __init__(self, path: str = "/dev/kmsg", is_whole: bool = False) -> None:
        self.reason: "str | None" = None
        self._fd: "int | None" = None
        self._rest = b""  # a line whose end was not read yet
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not is_whole:
                os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.reason = "%s: %s" % (path, error.strerror)
            self.close()

    def messages(self) -> "Iterator[tuple[float, str]]":
        """(s since boot, text) of each message of the kernel itself since the last call."""
        for at_s, text, is_kernel in self.all_messages():
            if is_kernel:
                yield at_s, text

    def all_messages(self) -> "Iterator[tuple[float, str, bool]]":
        """(s since boot, text, whether the kernel wrote it) of each message since the last call."""
        left = MAX_BYTES
        while self._fd is not None and left > 0:
            try:
                data = os.read(self._fd, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # the ring buffer has overtaken the reader: read on at its oldest message
            except OSError as error:
                self.reason = error.strerror
                self.close()
                return
            if not data:
                return
            left -= len(data)
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()[-8192:]
            for message in filter(None, map(parse_message, lines)):
                yield message

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def parse_message(line: bytes) -> "tuple[float, str, bool] | None":
    """(s since boot, text, whether the kernel wrote it); None for a line that continues another, or is malformed."""
    head, separator, text = line.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or not (_is_number(fields[0]) and _is_number(fields[2])):
        return None
    return int(fields[2]) / 1e6, text.decode("utf-8", "replace"), int(fields[0]) >> 3 == 0


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 18
