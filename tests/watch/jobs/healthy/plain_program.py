"""Healthy: `python plain_program.py`, one process with a thread that prepares its data."""

import os
import queue
import sys
import threading
import time

batches = queue.Queue(4)


def prepare():
    while True:
        batches.put(sum(number * number for number in range(5000)))
        time.sleep(2.0)


def train():
    for step in range(10**9):
        value = batches.get()
        time.sleep(0.5)
        print(step, value, flush=True)


threading.Thread(target=prepare, daemon=True).start()
sys.stdout.write(f"READY rank=0 pid={os.getpid()}\n")
train()
