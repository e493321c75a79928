"""A healthy job: every rank fetches its batches with an executor of threads, and reduces what comes first."""

import concurrent.futures
import time

from common import join, step


def fetch_part(number):
    time.sleep(0.05 + 0.02 * (number % 3))
    return number


join()
with concurrent.futures.ThreadPoolExecutor(3) as executor:
    while True:
        for _ in concurrent.futures.as_completed([executor.submit(fetch_part, number) for number in range(6)]):
            step()
