"""Archives of clients of the HTTP API."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

from gconsole.launch.archive import unpack
from gconsole.launch.code_folder import BadFolder, read_folder

from .places import scratch


def read_archive(data: bytes) -> None:
    """Unpack it: nothing is written outside of the new folder, and what is in it can be read as a folder of code."""
    with scratch() as folder:
        (folder / "archive").write_bytes(data)
        try:
            unpack(folder / "archive", folder / "code")
            read_folder(folder / "code")
        except (BadFolder, OSError):
            pass
        assert set(os.listdir(folder)) <= {"archive", "code"}  # noqa: PTH208 - names only


def archive_seeds() -> list[bytes]:
    """Small archives of each form."""
    seeds = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
            for name, kind, link in (
                ("lib", tarfile.DIRTYPE, ""),
                ("lib/x" + "y" * 90, tarfile.REGTYPE, ""),
                ("latest", tarfile.SYMTYPE, "lib"),
                ("same", tarfile.LNKTYPE, "lib/x" + "y" * 90),
            ):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = kind, link
                archive.addfile(entry)
        seeds += [buffer.getvalue(), gzip.compress(buffer.getvalue())]
    return seeds
