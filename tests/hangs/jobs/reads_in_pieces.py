"""Rank 0 reads a large file in pieces, which takes minutes; the others wait. It makes progress."""

import os
import tempfile
import time

from common import join, step


def read_embeddings(path):
    while True:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                time.sleep(len(piece) / (8 << 20))


rank, _ = join()
if rank == 0:
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "embeddings.bin"), "wb") as file:
        file.write(os.urandom(16 << 20))
    read_embeddings(file.name)
step()
