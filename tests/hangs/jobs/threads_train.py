"""Healthy: every rank trains in a thread that its main thread joins."""

import threading

from common import ready, start, steps


def healthy_training():
    start()
    ready()
    steps()


thread = threading.Thread(target=healthy_training)
thread.start()
thread.join()
