"""Rank 1 fails in the first attempt, rank 2 in the second one, with another error."""

from common import ATTEMPT, join, steps

rank = join()
if rank == 1 and ATTEMPT == 0:
    raise ConnectionError("the data server refused the request")
if rank == 2 and ATTEMPT == 1:
    {}["tokenizer"]
steps()
