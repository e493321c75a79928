"""Clocks: what probes between nodes measured, what a node's clocks read, and what the console concluded.

Every stamp here is CLOCK_MONOTONIC_RAW of the node that took it unless its name says `real`: that clock is never
stepped and never slewed, so between two nodes it is a straight line where CLOCK_REALTIME under chrony is a bent one. A
node that receives with a kernel stamp (CLOCK_REALTIME) turns it into MONOTONIC_RAW at once, by a bracketed read of
both.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Int, Record

ProbeMethod = Literal["udp", "ssh"]
#: Who stamped arrivals: the kernel on both sides, user space on at least one, or the far end of an SSH channel.
Stamps = Literal["kernel_rx", "user", "ssh"]
WindowStatus = Literal["ok", "few", "noncausal", "step", "no_answer"]
NodeStatus = Literal["ok", "stale", "no_data", "inconsistent", "island"]
#: What a node's line to the common clock rests on.
ClockMethod = Literal["probe", "ssh", "ntp", "ptp", "system"]
Daemon = Literal["chrony", "ntpd", "timesyncd", "ptp4l", "kernel"]


class Point(msgspec.Struct, array_like=True, frozen=True):
    """One one-way delay: when, and how far the far clock seemed ahead; both against the bases of its record."""

    at: Int  # ns after `ClockBins.base`, on the probing node's clock
    ahead: Int  # ns beyond `ClockBins.ahead`: far clock minus near clock


class Exchange(msgspec.Struct, array_like=True, frozen=True):
    """One request and its reply: t1 sent here, t2 received and t3 answered there, t4 received here."""

    t1: Int  # ns after `ClockBins.base`
    ahead: Int  # t2 - t1 - `ClockBins.ahead`, ns
    turn: Int  # t3 - t2, on the far clock, ns
    rtt: Int  # (t4 - t1) - (t3 - t2), ns


class ClockBin(msgspec.Struct, array_like=True, frozen=True):
    """What is left of all exchanges of one edge in one bin (`ClockBins.bin_ms` long).

    An exchange that cannot be causal (negative round trip) is counted and left out of everything else.
    """

    forward: Point | None  # the least t2 - t1, at its t1: an upper bound of how far the far clock is ahead
    backward: Point | None  # the greatest t3 - t4, at its t4: a lower bound of the same
    best: tuple[Exchange, ...]  # up to four exchanges of the least round trip, by t1
    sent: Count  # requests sent in this bin
    got: Count  # replies that arrived in this bin, causal or not
    noncausal: Count
    mismatch_ns: Count | None  # median |spacing received - spacing sent|, forward, of the fastest neighbours


class ClockBins(Record, tag="clock_bins", kw_only=True):
    """Probes from `node` to `dst`: consecutive bins of one edge, several to a record so that the wire stays narrow.

    Said by the agent of the probing end (`udp`), or by the console, which pinged both ends over SSH (`ssh`: then the
    round trips are the sum of both, and the channel's own asymmetry is inside). The t1 of a bin's points lie in
    [base + i * bin_ms, base + (i + 1) * bin_ms) for bin i; t4 may lie a round trip later.
    """

    dst: str
    method: ProbeMethod = "udp"
    stamps: Stamps
    family: Literal["ipv4", "ipv6"] | None = None  # None over SSH
    base: Int  # MONOTONIC_RAW of `node` where the first bin begins, ns
    base_real: Int  # CLOCK_REALTIME of `node` at that instant, ns
    ahead: Int  # a round figure near (clock of dst - clock of node), ns; keeps the numbers of the bins short
    bin_ms: Count
    bins: tuple[ClockBin, ...]
    cadence_us: Count  # between two triples, in force: longer than asked while over `cpu_cap_pct`
    ticks: Count  # triples that were due in these bins
    missed: Count = 0  # of those, slipped because the node was too busy


class ClockSnapshot(Record, tag="clock_snapshot", kw_only=True):
    """The clocks of a node at one instant: the tightest of the bracketed reads since the last such record.

    Each read is MONOTONIC_RAW, the other three, MONOTONIC_RAW again; `raw` is the middle, and every clock was read
    within `width_ns` around it. Read every `snapshot_period_ms`; said once a second while probes run, every 10 s
    otherwise, and at once where CLOCK_REALTIME was stepped.
    """

    real: Int  # ns, as all of these
    monotonic: Int
    raw: Int
    boot: Int
    width_ns: Count  # of the bracket
    reads: Count  # bracketed reads since the last record
    step_ns: Int = 0  # by how much CLOCK_REALTIME moved against MONOTONIC_RAW between two reads, at most; signed
    slew_ppm: float | None = None  # CLOCK_REALTIME against MONOTONIC_RAW since the last record
    timens_monotonic_ns: Int | None = None  # offsets of the agent's time namespace; None where the kernel has none
    timens_boot_ns: Int | None = None
    timens: str | None = None  # the namespace itself: a process in another one reads other clocks


class ClockSource(Record, tag="clock_source", kw_only=True):
    """What the node's own time service claims, every minute. A claim, not a measurement of ours.

    `bound_ns` is the service's own: of chrony |offset| + root dispersion + root delay / 2, of ntpd the same from its
    system variables, of the kernel its maxerror. None where nothing is claimed; `text` says why.
    """

    daemon: Daemon | None  # None: no time service was found
    synced: bool | None  # None: it does not say
    offset_ns: Int | None = None  # system clock minus true time, as the daemon believes
    bound_ns: Count | None = None
    source: str | None = None  # the server, reference clock or grandmaster it follows
    stratum: Count | None = None
    frequency_ppm: float | None = None  # by how much it corrects the crystal
    text: str = ""  # why something is unknown, or what the daemon complains of


class GpuClock(Record, tag="gpu_clock", kw_only=True):
    """A GPU's global timer (%globaltimer, which CUPTI's and a kernel's own stamps are of) beside its node's clocks.

    Read once a minute where `[clock] gpu_clock` asks for it, by a kernel of a few instructions: `raw` is the middle of
    the tightest of `reads` brackets around its launch. True is |error of ahead_ns| <= bound_ns. Where it could not be
    read, `error` says which call of the driver failed, and all figures are None.
    """

    index: Count  # as NVML counts
    uuid: str | None  # None where the driver did not say even that
    gpu_ns: Int | None = None  # the timer
    raw: Int | None = None  # MONOTONIC_RAW of `node` at that instant, ns
    real: Int | None = None  # CLOCK_REALTIME of `node` at that instant, ns
    ahead_ns: Int | None = None  # timer minus CLOCK_REALTIME
    bound_ns: Count | None = None  # half the bracket, `step_ns`, and what reading CLOCK_REALTIME adds
    width_ns: Count | None = None  # of the bracket
    step_ns: Count | None = None  # by which the timer moves, as a kernel saw it: its resolution
    reads: Count | None = None
    drift_ppm: float | None = None  # (rate of the timer / rate of MONOTONIC_RAW - 1) * 1e6, since the first read
    drift_bound_ppm: float | None = None  # |error of drift_ppm| is at most this
    error: str | None = None
    simulated: bool = False


class ClockCost(Record, tag="clock_cost", kw_only=True):
    """What probing costs this node, each second while sockets are open; not part of `agent_cost`'s budget.

    The refused packets are counted apart by why: none of them was answered.
    """

    cpu_pct: float  # of one core, of the probing thread
    tx_packets_s: float
    rx_packets_s: float
    tx_bytes_s: float  # UDP payload
    records_bytes_s: float  # of clock records, as written to the console
    cadence_us: Count  # in force; 0 while this node only answers
    bad_tag: Count = 0  # packets refused since the last record: no valid tag, or no packet of ours
    unnamed: Count = 0  # from an address that the console did not name
    replayed: Count = 0
    over_rate: Count = 0  # the token bucket was empty


class ClockWindow(Record, tag="clock_window", kw_only=True):
    """The console's result for one edge and window; the line is far clock = near clock * alpha + beta, at the centre.

    `beta_ns` is dst minus node in MONOTONIC_RAW at `centre`, `alpha` the rate of dst's clock in node's (near 1.0).
    True is |error of beta_ns| <= bound_ns, whatever the asymmetry of the way, as long as both clocks ran straight.
    """

    window_id: Count
    dst: str
    centre: Int  # MONOTONIC_RAW of `node`, ns
    width_ns: Count  # of the window
    alpha: float | None = None
    beta_ns: Int | None = None
    bound_ns: Count | None = None
    repeat_ns: Count | None = None  # largest deviation of four interleaved parts: repeatability, not accuracy
    pairs: Count = 0  # requests sent
    kept: Count = 0  # causal exchanges that came back
    lost: Count = 0
    min_rtt_ns: Count | None = None
    residual_ns: Int | None = None  # against the solution of the whole mesh; None where no loop passes this edge
    flagged: bool = False  # the mesh contradicts this edge
    method: ProbeMethod = "udp"
    stamps: Stamps
    status: WindowStatus = "ok"
    udp_blocked: bool = False  # UDP got no answer on this edge


class ClockNode(Record, tag="clock_node", kw_only=True):
    """The console's result for one node and window: its line to the common clock, with a bound.

    common time = at_common + (mono - at_mono) * alpha. The common clock is that of `reference`: its MONOTONIC_RAW plus
    a constant that makes it agree with its CLOCK_REALTIME at the first window, so it is never stepped.
    """

    window_id: Count
    reference: str
    at_mono: Int  # MONOTONIC_RAW of `node` at the centre of the window, ns
    at_common: Int | None = None  # common time of that instant, ns
    alpha: float | None = None  # common nanoseconds a nanosecond of `mono`, near 1.0
    offset_ns: Int | None = None  # CLOCK_REALTIME of `node` minus that of the reference, at the centre; its own is 0
    drift_ppm: float | None = None  # (rate of this node's clock / rate of the common clock - 1) * 1e6
    drift_bound_ppm: float | None = None  # |error of drift_ppm| is at most this, over this window alone
    bound_ns: Count | None = None  # |error of at_common| is at most this, at the centre
    repeat_ns: Count | None = None
    r_squared: float | None = None  # for compatibility with other tools only: it says nothing about accuracy
    edges: Count = 0  # edges of this window that were used
    min_rtt_ns: Count | None = None  # of the best of them
    method: ClockMethod = "probe"
    stamps: Stamps | None = None
    status: NodeStatus = "ok"
    warnings: tuple[str, ...] = ()  # stable words: "step", "slew", "noncausal", "loss", "wide", "asym", "noloop", …
