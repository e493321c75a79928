"""A started sampler, its scenario, and the typed records of its ticks."""

import time
from types import SimpleNamespace

import pynvml
from fake_proc import check

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.gpu import GpuSampler

DEADLINE_S = 60.0


class StartedSampler:
    """`tick(seconds)` advances the clock and returns the records by kind; `now` is the sampler's clock."""

    def __init__(self, scenario, folder, proc=None, kmsg=None, interval_s=1.0):
        self.scenario = scenario
        self.context = Context(interval_s=interval_s, proc=str(proc or folder / "no-proc"))
        self.context.sys = str(folder / "sys")
        self.context.kmsg = str(kmsg or folder / "kmsg")
        (folder / "kmsg").touch()
        self.sampler = GpuSampler(self.context, pynvml)
        self.now = 1000.0
        self._is_started = False
        self.sampler.start()
        self._is_started = True

    def tick(self, seconds=1.0):
        self.now += seconds
        records = SimpleNamespace(
            inventory=[], gpu_info=[], gpu=[], gpu_digest=[], gpu_link=[], gpu_process=[], gpu_event=[]
        )
        for kind, fields in self.sampler.tick(self.now):
            getattr(records, kind).append(check(kind, fields))
        return records

    def until(self, condition, seconds=0.0):
        """Tick without advancing the sampler's clock until `condition(records)` holds; its result."""
        began = time.monotonic()
        while True:
            records = self.tick(seconds)
            if condition(records):
                return records
            assert time.monotonic() - began < DEADLINE_S, f"not within {DEADLINE_S:g} s"
            time.sleep(0.005)

    def ranks(self, *ranks):
        """Set the ranks that the process sampler would report."""
        empty = {"attempt": 0, "gpu": None, "job": "j", "local_rank": None, "ns_pid": None, "start_ticks": 1}
        self.context.shared["processes"] = SimpleNamespace(ranks=[SimpleNamespace(**empty | rank) for rank in ranks])

    def stop(self):
        if self._is_started:
            self.sampler.stop()
