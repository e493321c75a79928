"""Rank 1 is stuck; the watchdogs of the others end them (the messages alone: there is no NCCL here)."""

import os
import sys
import time

from common import join

rank = join()
if rank == 1:
    time.sleep(3600)
time.sleep(5)
words = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1187, OpType=ALLREDUCE, NumelIn=25557032, "
    "NumelOut=25557032, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
sys.stderr.write(f"[rank{rank}]:[E1124 09:00:00.000000 ProcessGroupNCCL.cpp:688] [Rank {rank}] {words}\n")
sys.stderr.write(
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
    f"[Rank {rank}] {words}\n"
)
sys.stderr.flush()
os.abort()
