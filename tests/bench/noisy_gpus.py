"""Synthetic busy GPUs: every field of a `gpu` record present, with the noise of real drivers.

Power, energy, temperatures and clocks vary as those of an H100 under load; GPM shares have two decimals, rates are
whole bytes of the last second, memory changes in pages of 2 MiB, counters rarely increase.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from gconsole.records import Gpu

PAGE = 2 << 20
#: Share of the seconds in which a driver limits the clocks of a GPU under load.
LIMITED = 0.3


class NoisyGpu:
    """One GPU, a record per second."""

    def __init__(self, chance: random.Random, node: str, index: int) -> None:
        self._chance, self._node, self._index = chance, node, index
        groups = [f"{chance.getrandbits(bits):0{bits // 4}x}" for bits in (32, 16, 16, 16, 48)]
        self._uuid = f"GPU-{'-'.join(groups)}"
        self._power, self._temp, self._mem_temp = 620.0, 62.0, 72.0
        self._energy = 1e8 + chance.random() * 1e6
        self._mem = 34_000 * PAGE
        self._corrected, self._replays = chance.randrange(1000), chance.randrange(100)

    def record(self, agent: str, seq: int, t: int, mono: int, rx: int) -> Gpu:
        chance = self._chance
        self._power += (620 - self._power) * 0.2 + chance.gauss(0, 15)
        self._energy += self._power
        self._temp += (63 - self._temp) * 0.1 + chance.gauss(0, 0.6)
        self._mem_temp += (72 - self._mem_temp) * 0.1 + chance.gauss(0, 0.6)
        if chance.random() < 0.1:
            self._mem += chance.choice((-1, 1)) * PAGE * chance.randrange(1, 20)
        limited = chance.random() < LIMITED
        return Gpu(
            node=self._node, agent=agent, seq=seq, t=t, mono=mono, rx=rx, index=self._index, uuid=self._uuid,
            util_pct=float(round(self._share(97, 2))), mem_util_pct=float(round(self._share(55, 5))),
            encoder_pct=0.0, decoder_pct=0.0, mem_used_bytes=self._mem, bar1_used_bytes=3 * PAGE,
            power_w=round(self._power, 3), energy_j=round(self._energy, 3), temp_c=float(round(self._temp)),
            mem_temp_c=float(round(self._mem_temp)), fan_pct=30.0, sm_clock_mhz=1980.0 - 15 * chance.randrange(8),
            mem_clock_mhz=2619.0, video_clock_mhz=1545.0 - 15 * chance.randrange(3), pstate=0,
            clocks_event_reasons=("sw_power_cap",) if limited else (),
            clocks_event_share_pct={"sw_power_cap": round(chance.random() * 5, 2)} if limited else {},
            sm_pct=round(self._share(92, 2), 2), sm_occupancy_pct=round(self._share(40, 3), 2),
            tensor_pct=round(self._share(45, 4), 2), dram_pct=round(self._share(50, 4), 2),
            pcie_rx_bytes_s=float(chance.randrange(10**9)), pcie_tx_bytes_s=float(chance.randrange(10**9)),
            nvlink_rx_bytes_s=float(chance.randrange(10**11)), nvlink_tx_bytes_s=float(chance.randrange(10**11)),
            ecc_corrected_volatile=0, ecc_uncorrected_volatile=0, ecc_corrected_aggregate=self._corrected,
            ecc_uncorrected_aggregate=0, remapped_rows_corrected=0, remapped_rows_uncorrected=0, remap_pending=False,
            remap_failed=False, retired_pages_corrected=0, retired_pages_uncorrected=0, retire_pending=False,
            pcie_replays=self._replays, nvlink_crc_errors=0, nvlink_replay_errors=0, nvlink_recovery_errors=0,
            recovery_action="none",
        )  # fmt: skip

    def _share(self, mean: float, spread: float) -> float:
        return min(100.0, max(0.0, self._chance.gauss(mean, spread)))


def seconds(nodes: int, gpus: int, began_ns: int, seed: int = 1) -> Iterator[list[list[Gpu]]]:
    """Endless: the records of each second, as a list per node, in order of arrival within that second."""
    chance = random.Random(seed)
    fleet = [[NoisyGpu(chance, f"node{n:04d}", i) for i in range(gpus)] for n in range(nodes)]
    agents = [f"{chance.getrandbits(64):016x}" for _ in range(nodes)]
    boots = [chance.randrange(10**14, 10**15) for _ in range(nodes)]
    second = 0
    while True:
        brought = []
        for n, cards in enumerate(fleet):
            passed = second * 1_000_000_000 + n * 1_000_000_000 // nodes + chance.randrange(2_000_000)
            t, mono = began_ns + passed, boots[n] + passed
            rx, first = t + 500_000 + chance.randrange(1_000_000), second * gpus + 1
            brought.append([card.record(agents[n], first + i, t, mono, rx) for i, card in enumerate(cards)])
        yield brought
        second += 1
