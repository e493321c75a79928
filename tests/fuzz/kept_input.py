"""What a gateway has kept on its disk, as a fuzz input: the frames, and the lines that decide about their numbers."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path

from gconsole_remote.agent import cache
from gconsole_remote.gateway import keeper, past, spool


def read_kept(data: bytes) -> None:
    """The bytes as a node's file, read by the next gateway; and as lines of the node."""
    with tempfile.TemporaryDirectory() as top:
        folder = spool.Folder(cache.Cache(f"{top}/cache"), "fuzz")
        (Path(folder.path) / f"{cache.short_name('node1')}-00000001").write_bytes(data)
        before = past.Past(folder, keeper.Opening("node1", ["true"]))
        before.pass_on(b'{"gconsole":{"agent":"a"}}\n' + data, 1 << 16)
        while before.is_sending:
            before.next_bytes(1 << 16)
        before.pass_on(data, 1 << 16)
        before.on_input(data)
        folder.remove("node1")
        folder.leave()
    for line in data.split(b"\n"):
        keeper.numbers_of(line)


def kept_seeds() -> list[bytes]:
    """A file with two frames, and lines."""
    lines = b'{"kind":"log","seq":1,"t":1}\n{"gap":[2,3],"reason":"x"}\n{"z":"eJw="}\n'
    with tempfile.TemporaryDirectory() as top:
        folder = spool.Folder(cache.Cache(f"{top}/cache"), "fuzz")
        writer = spool.Writer(folder, "node1", 1 << 20)
        writer.append("a", 1, 3, lines)
        writer.append("b", 1, 3, lines)
        content = Path(folder.files("node1")[0]).read_bytes()
        folder.remove("node1")
        folder.leave()
    return [content, content[:-3], lines, zlib.compress(lines)]
