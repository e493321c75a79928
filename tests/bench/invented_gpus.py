"""Records of `gpu` with every field present and the noise of real GPUs, each digit as the agent rounds it.

A job of steps: utilisation and clocks move with the step, power and temperature follow with their own noise, rates
come from counters over a tick that is never exactly a second. Counters of errors stand still, as they mostly do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from gconsole.records import Gpu

SECOND = 1_000_000_000


def gpus(
    nodes: int, gpus_a_node: int, ticks: int, start_ns: int = 1_790_000_000 * SECOND, seed: int = 7
) -> Iterator[Gpu]:
    """`nodes * gpus_a_node` GPUs for that many seconds, in the order of arrival."""
    noise = random.Random(seed)
    uuids = {
        (node, index): f"GPU-{noise.randbytes(4).hex()}-{noise.randbytes(2).hex()}-{noise.randbytes(2).hex()}-"
        f"{noise.randbytes(2).hex()}-{noise.randbytes(6).hex()}"
        for node in range(nodes) for index in range(gpus_a_node)
    }  # fmt: skip
    agents = [noise.randbytes(8).hex() for _ in range(nodes)]
    booted = [noise.randrange(10**15, 10**16) for _ in range(nodes)]
    behind = [noise.randrange(-(10**7), 10**7) for _ in range(nodes)]
    energy = {key: noise.uniform(1e8, 3e9) for key in uuids}
    replays = {key: noise.randrange(0, 20) for key in uuids}
    seq = [0] * nodes
    for tick in range(ticks):
        for node in range(nodes):
            wake = int(noise.gauss(150_000, 60_000))
            now = start_ns + tick * SECOND + wake
            arrival = now + int(noise.expovariate(1 / 400_000)) + 300_000
            for index in range(gpus_a_node):
                seq[node] += 1
                yield _gpu(
                    noise, f"node{node:03d}", agents[node], seq[node], now + behind[node],
                    booted[node] + tick * SECOND + wake, arrival, index, uuids[node, index], tick, energy,
                    replays[node, index],
                )  # fmt: skip


def _gpu(
    noise: random.Random, node: str, agent: str, seq: int, t: int, mono: int, rx: int, index: int, uuid: str, tick: int,
    energy: dict[tuple[int, int], float], replays: int,
) -> Gpu:  # fmt: skip
    wave = math.sin(tick / 7 + index)
    busy = min(100.0, max(0.0, 93 + 5 * wave + noise.gauss(0, 2)))
    power = round(620 + 55 * wave + noise.gauss(0, 9), 3)
    key = (int(node[4:]), index)
    energy[key] += power
    capped = power > 660
    share = {"sw_power_cap": round(noise.uniform(0, 40), 2)} if capped else {}
    return Gpu(
        node=node, agent=agent, seq=seq, t=t, mono=mono, rx=rx, index=index, uuid=uuid,
        util_pct=round(busy), mem_util_pct=round(busy * 0.6 + noise.gauss(0, 2)), encoder_pct=0, decoder_pct=0,
        mem_used_bytes=71_303_168_000 + (noise.randrange(0, 64) << 21 if noise.random() < 0.02 else 0),
        bar1_used_bytes=1 << 20, power_w=power, energy_j=round(energy[key], 3),
        temp_c=round(58 + 4 * wave + noise.gauss(0, 0.6)), mem_temp_c=round(70 + 3 * wave + noise.gauss(0, 0.6)),
        fan_pct=0, sm_clock_mhz=1980 - 15 * noise.randrange(0, 5) * capped, mem_clock_mhz=2619, video_clock_mhz=1545,
        pstate=0, clocks_event_reasons=("sw_power_cap",) if capped else (), clocks_event_share_pct=share,
        sm_pct=round(busy * 0.97 + noise.gauss(0, 1), 2), sm_occupancy_pct=round(31 + 4 * wave + noise.gauss(0, 1), 2),
        tensor_pct=round(46 + 9 * wave + noise.gauss(0, 2), 2), dram_pct=round(38 + 7 * wave + noise.gauss(0, 2), 2),
        pcie_rx_bytes_s=round(noise.lognormvariate(19.5, 0.5), 1),
        pcie_tx_bytes_s=round(noise.lognormvariate(19, 0.5), 1),
        nvlink_rx_bytes_s=round(noise.gauss(1.9e11 + 4e10 * wave, 8e9), 1),
        nvlink_tx_bytes_s=round(noise.gauss(1.9e11 + 4e10 * wave, 8e9), 1),
        ecc_corrected_volatile=0, ecc_uncorrected_volatile=0, ecc_corrected_aggregate=replays,
        ecc_uncorrected_aggregate=0, remapped_rows_corrected=0, remapped_rows_uncorrected=0, remap_pending=False,
        remap_failed=False, retired_pages_corrected=0, retired_pages_uncorrected=0, retire_pending=False,
        pcie_replays=replays, nvlink_crc_errors=0, nvlink_replay_errors=0, nvlink_recovery_errors=0,
        grown={}, recovery_action="none",
    )  # fmt: skip
