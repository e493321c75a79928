"""Clock records: probes between nodes, clock snapshots of a node, and the console's estimates.

Timestamps are CLOCK_MONOTONIC_RAW of the node that took them unless the name contains `real`: that clock is never
stepped or slewed, so that the relation of two nodes' clocks is linear. Kernel receive stamps (CLOCK_REALTIME) are
converted to MONOTONIC_RAW immediately, by a bracketed read of both clocks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Float, Nanos, Record, Span

ProbeMethod = Literal["udp", "ssh"]
#: Source of arrival stamps: the kernel on both sides, user space on at least one, or the remote end of an SSH channel.
Stamps = Literal["kernel_rx", "user", "ssh"]
WindowStatus = Literal["ok", "few", "noncausal", "step", "no_answer"]
NodeStatus = Literal["ok", "stale", "no_data", "inconsistent", "island"]
#: Method of a node's clock estimate.
ClockMethod = Literal["probe", "ssh", "ntp", "ptp", "system"]
Daemon = Literal["chrony", "ntpd", "timesyncd", "ptp4l", "kernel"]


class Point(msgspec.Struct, array_like=True, frozen=True):
    """One one-way delay: time, and apparent offset of the remote clock, both relative to the bases of the record."""

    at: Nanos  # ns after `ClockBins.base`, on the probing node's clock
    ahead: Nanos  # ns beyond `ClockBins.ahead`: remote minus local clock


class Exchange(msgspec.Struct, array_like=True, frozen=True):
    """One request and reply: t1 sent, t2 received remotely, t3 replied remotely, t4 received."""

    t1: Nanos  # ns after `ClockBins.base`
    ahead: Nanos  # t2 - t1 - `ClockBins.ahead`, ns
    turn: Nanos  # t3 - t2, on the remote clock, ns
    rtt: Nanos  # (t4 - t1) - (t3 - t2), ns


class ClockBin(msgspec.Struct, array_like=True, frozen=True):
    """Summary of all exchanges of one edge in one bin of `ClockBins.bin_ms`.

    Non-causal exchanges (negative round trip) are counted but not used.
    """

    forward: Point | None  # smallest t2 - t1, at its t1: an upper bound of the remote clock's offset
    backward: Point | None  # largest t3 - t4, at its t4: a lower bound of the offset
    best: tuple[Exchange, ...]  # up to four exchanges with the shortest round trip, by t1
    sent: Count  # requests sent in this bin
    got: Count  # replies that arrived in this bin, causal or not
    noncausal: Count
    mismatch_ns: Span | None  # median |spacing received - spacing sent|, forward, of the fastest neighbours


class ClockBins(Record, tag="clock_bins", kw_only=True):
    """Probes from `node` to `dst`: consecutive bins of one edge.

    Sent by the probing agent (`udp`), or by the console that pinged both nodes over SSH (`ssh`: round trips are the sum
    of both, including the channel's asymmetry). The t1 of bin i are in
    [base + i * bin_ms, base + (i + 1) * bin_ms); t4 may be a round trip later.
    """

    dst: str  # node that replied
    method: ProbeMethod = "udp"  # udp: probes; ssh: pings over the SSH connections
    stamps: Stamps  # source of arrival stamps: kernel_rx, user or ssh
    family: Literal["ipv4", "ipv6"] | None = None  # address family of the probes; None over SSH
    base: Nanos  # MONOTONIC_RAW of `node` at the start of the first bin, ns
    base_real: Nanos  # CLOCK_REALTIME of `node` at that instant, ns
    ahead: Nanos  # clock of `dst` minus clock of `node`, rounded, ns
    bin_ms: Count  # length of a bin, milliseconds
    bins: tuple[ClockBin, ...]  # consecutive bins of exchanges, the oldest first
    cadence_us: Count  # effective interval of triples; longer than configured while above `cpu_cap_pct`
    ticks: Count  # triples due in these bins
    missed: Count = 0  # triples skipped because the node was too busy


class ClockSnapshot(Record, tag="clock_snapshot", kw_only=True):
    """The clocks of a node at one instant: the tightest bracketed read since the last record.

    A read is MONOTONIC_RAW, the other three clocks, MONOTONIC_RAW again; `raw` is the middle, and every clock was read
    within `width_ns` around it. While probes run, read every `snapshot_period_ms` and sent once a second; else read a
    fifth as often, at least twice a second, and sent every 10 s. Sent immediately after a step of CLOCK_REALTIME.
    """

    real: Nanos  # CLOCK_REALTIME, ns
    monotonic: Nanos  # CLOCK_MONOTONIC, ns
    raw: Nanos  # CLOCK_MONOTONIC_RAW, ns: the middle of the bracket
    boot: Nanos  # CLOCK_BOOTTIME, ns
    width_ns: Span  # length of the bracket in which the clocks were read
    reads: Count  # bracketed reads since the last record
    step_ns: Nanos = 0  # largest step of CLOCK_REALTIME against MONOTONIC_RAW between two reads; signed
    slew_ppm: Float | None = None  # CLOCK_REALTIME against MONOTONIC_RAW since the last record
    timens_monotonic_ns: Nanos | None = None  # offsets of the agent's time namespace; None without kernel support
    timens_boot_ns: Nanos | None = None  # offset of CLOCK_BOOTTIME in that namespace
    timens: str | None = None  # the namespace; processes in another one read other clocks


class ClockSource(Record, tag="clock_source", kw_only=True):
    """State reported by the node's time service, every minute; not measured by gconsole.

    `bound_ns` is the service's own: chrony |offset| + root dispersion + root delay / 2, ntpd the same from its system
    variables, the kernel its maxerror. None if not reported; `text` has the reason.
    """

    daemon: Daemon | None  # time service that runs; None if none was found
    synced: bool | None  # True if it is synchronised; None if not reported
    offset_ns: Nanos | None = None  # system clock minus true time, estimated by the daemon
    bound_ns: Span | None = None  # largest error, from the values of the service
    source: str | None = None  # the server, reference clock or grandmaster it follows
    stratum: Count | None = None  # distance from a reference clock, in servers
    frequency_ppm: Float | None = None  # frequency correction
    text: str = ""  # why a value is unknown, or the daemon's error


class GpuClock(Record, tag="gpu_clock", kw_only=True):
    """A GPU's global timer (%globaltimer, the clock of CUPTI and of kernels) against its node's clocks.

    Read once a minute if `[clock] gpu_clock` is on, by a kernel of a few instructions: `raw` is the middle of the
    tightest of `reads` brackets around its launch. |error of ahead_ns| <= bound_ns. On failure `error` names the failed
    call of the driver, and all values are None.
    """

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str | None  # UUID of the GPU; None if the driver did not report it
    gpu_ns: Nanos | None = None  # the timer
    raw: Nanos | None = None  # MONOTONIC_RAW of `node` at that instant, ns
    real: Nanos | None = None  # CLOCK_REALTIME of `node` at that instant, ns
    ahead_ns: Nanos | None = None  # timer minus CLOCK_REALTIME
    bound_ns: Span | None = None  # half the bracket, `step_ns`, and the error of reading CLOCK_REALTIME
    width_ns: Span | None = None  # length of the bracket in which the clocks were read
    step_ns: Span | None = None  # resolution of the timer, measured by a kernel
    reads: Count | None = None  # brackets, of which the tightest counts
    drift_ppm: Float | None = None  # (rate of the timer / rate of MONOTONIC_RAW - 1) * 1e6, since the first read
    drift_bound_ppm: Float | None = None  # |error of drift_ppm| is at most this
    error: str | None = None  # the failed call of the driver; None if the read succeeded
    simulated: bool = False  # True for simulated data


class ClockCost(Record, tag="clock_cost", kw_only=True):
    """Cost of probing on this node, each second while sockets are open; not part of `agent_cost`.

    Rejected packets, which get no reply, are counted by reason.
    """

    cpu_pct: Float  # CPU time of the probing thread, of one core
    tx_packets_s: Float  # packets sent
    rx_packets_s: Float  # packets received
    tx_bytes_s: Float  # UDP payload
    records_bytes_s: Float  # clock records, as written to the console
    cadence_us: Count  # effective; 0 while this node only replies
    bad_tag: Count = 0  # packets rejected since the last record: invalid tag or format
    unnamed: Count = 0  # from an address that is not a peer
    replayed: Count = 0  # duplicate requests, and replies (late or duplicate) that match no pending request
    over_rate: Count = 0  # the token bucket was empty


class ClockWindow(Record, tag="clock_window", kw_only=True):
    """The console's estimate of one edge and window: clock of dst = clock of node * alpha + beta, at the centre.

    `beta_ns` is dst minus node in MONOTONIC_RAW at `centre`, `alpha` the rate of dst's clock in node's (near 1.0).
    |error of beta_ns| <= bound_ns under any path asymmetry, assuming constant drift within the window.
    """

    window_id: Count  # number of the window; the same for all edges of one window
    dst: str  # node at the far end of the edge
    centre: Nanos  # MONOTONIC_RAW of `node`, ns
    width_ns: Span  # length of the window
    alpha: Float | None = None  # rate of the far clock in the near one's, near 1.0
    beta_ns: Nanos | None = None  # far minus near clock at `centre`, MONOTONIC_RAW
    bound_ns: Span | None = None  # |error of beta_ns| is at most this
    repeat_ns: Span | None = None  # largest deviation of four interleaved parts: repeatability, not accuracy
    pairs: Count = 0  # requests sent
    kept: Count = 0  # causal exchanges with a reply
    lost: Count = 0  # requests without a reply
    min_rtt_ns: Span | None = None  # shortest round trip
    residual_ns: Nanos | None = None  # against the network solution; None if the edge is in no loop
    flagged: bool = False  # inconsistent with the network solution
    method: ProbeMethod = "udp"  # udp or ssh
    stamps: Stamps  # source of arrival stamps: kernel_rx, user or ssh
    status: WindowStatus = "ok"  # ok, few (exchanges), noncausal, step or no_answer
    udp_blocked: bool = False  # no UDP reply on this edge


class ClockNode(Record, tag="clock_node", kw_only=True):
    """The console's estimate of one node and window: its relation to the common clock, with an error bound.

    common time = at_common + (mono - at_mono) * alpha. The common clock is MONOTONIC_RAW of `reference` plus a constant
    that matches its CLOCK_REALTIME at the first window, so it is never stepped.
    """

    window_id: Count  # number of the window; the same for all edges of one window
    reference: str  # node whose clock is the reference
    at_mono: Nanos  # MONOTONIC_RAW of `node` at the centre of the window, ns
    at_common: Nanos | None = None  # common time at `at_mono`, ns
    alpha: Float | None = None  # common ns per ns of `mono`, near 1.0
    offset_ns: Nanos | None = None  # CLOCK_REALTIME minus the reference's, at the centre; 0 for the reference
    drift_ppm: Float | None = None  # (rate of this node's clock / rate of the common clock - 1) * 1e6
    drift_bound_ppm: Float | None = None  # |error of drift_ppm| is at most this, over this window alone
    bound_ns: Span | None = None  # |error of at_common| is at most this, at the centre
    repeat_ns: Span | None = None  # largest deviation between parts of the window: repeatability, not accuracy
    r_squared: Float | None = None  # of the fit, for other tools; not a measure of accuracy
    edges: Count = 0  # edges used in this window
    min_rtt_ns: Span | None = None  # shortest round trip of the best edge
    method: ClockMethod = "probe"  # probe, ssh, ntp, ptp or system: what the estimate rests on
    stamps: Stamps | None = None  # source of arrival stamps of its edges
    status: NodeStatus = "ok"  # ok, stale, no_data, inconsistent, or island (not connected to the reference)
    warnings: tuple[str, ...] = ()  # stable names: "step", "slew", "noncausal", "loss", "wide", "asym", "noloop", …
