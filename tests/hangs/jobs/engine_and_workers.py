"""An inference engine: the main thread schedules, a worker thread executes; the worker of rank 3 takes a lock twice."""

import os
import queue
import threading
import time

import torch.distributed as dist
from common import ready, start, step

requests, answers = queue.Queue(), queue.Queue()


def execute_batch(number):
    if number == 50 and dist.get_rank() == 3 and not os.environ.get("HEALTHY"):
        sample_tokens()
    step()


def sample_tokens():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def busy_loop():
    while True:
        answers.put(execute_batch(requests.get()))


start()
threading.Thread(target=busy_loop, daemon=True).start()
ready()
for number in range(10**9):
    requests.put(number)
    answers.get()
    time.sleep(0.02)
