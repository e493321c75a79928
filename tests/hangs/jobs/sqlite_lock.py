"""Rank 0 reduces within a transaction, in which rank 1 of the same node waits for the lock of the database."""

import os
import sqlite3
import time

from common import join, step

PATH = f"/var/tmp/runs-{os.environ['MASTER_PORT']}.db"


def store_metrics(rank):
    database = sqlite3.connect(PATH, timeout=100_000, isolation_level=None)
    if rank == 1:
        time.sleep(1)
    database.execute("BEGIN IMMEDIATE")
    database.execute("CREATE TABLE IF NOT EXISTS losses (step, loss)")
    step()
    database.execute("COMMIT")


rank, _ = join()
store_metrics(rank) if rank < 2 else step()
