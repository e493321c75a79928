"""Rank 1 raises in a function that torch.distributed.elastic records."""

from common import join, steps
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if join() == 1:
        raise LookupError("no tokenizer for language xx")
    steps()


main()
