"""A healthy job in which all ranks of a node write to one database after each step."""

import os
import sqlite3
import time

from common import join, step

PATH = f"/var/tmp/losses-{os.environ['MASTER_PORT']}-{os.environ.get('GROUP_RANK', 0)}.db"
rank, _ = join()
database = sqlite3.connect(PATH, timeout=100, isolation_level=None)
database.execute("PRAGMA synchronous=OFF")
database.execute("CREATE TABLE IF NOT EXISTS losses (step, rank)")
number = 0
while True:
    step()
    number += 1
    database.execute("INSERT INTO losses VALUES (?, ?)", (number, rank))
    time.sleep(0.02)
