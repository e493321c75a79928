"""Host metrics from /proc."""

import pytest
from fake_proc import check

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.host import HostSampler, Rates

MEMINFO = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"


def count(root, read_sectors, received, cpu="cpu 100 0 50 800 50 0 0 0 0 0"):
    """Write the counters of /proc."""
    (root / "stat").write_text(f"{cpu}\ncpu0 1 1 1 1\n")
    (root / "diskstats").write_text(f"   8  0 gconsole-no-such-disk 1 2 {read_sectors} 4 5 6 0 8 9 10 11 0 0 0 0 0 0\n")
    (root / "net").mkdir(exist_ok=True)
    (root / "net" / "dev").write_text(
        "Inter-|   Receive                            |  Transmit\n face |bytes    packets\n"
        f"    lo: {10 * received} 1 0 0 0 0 0 0 {10 * received} 1 0 0 0 0 0 0\n"
        f"gconsole-eth9:{received} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n"
    )


@pytest.fixture
def root(tmp_path):
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "loadavg").write_text("1.50 2.00 3.00 1/100 1234\n")
    (tmp_path / "uptime").write_text("12345.67 1.0\n")
    (tmp_path / "pressure").mkdir()
    for name, share in (("cpu", "12.50"), ("memory", "0.00"), ("io", "3.25")):
        (tmp_path / "pressure" / name).write_text(f"some avg10={share} avg60=0.00 total=1\nfull avg10=9.99\n")
    return tmp_path


def tick(sampler, now):
    ((kind, fields),) = sampler.tick(now)
    return check(kind, fields)


def test_figures_whose_file_is_missing_are_unknown(root):
    host = tick(HostSampler(Context(proc=str(root))), 1.0)

    assert (host.mem_used_bytes, host.mem_available_bytes, host.swap_used_bytes) == (600 << 10, 400 << 10, 30 << 10)
    assert (host.load_1m, host.uptime_s) == (1.5, 12345.67)
    assert (host.cpu_stall_pct, host.mem_stall_pct, host.io_stall_pct) == (12.5, 0.0, 3.25)
    assert (host.cpu_pct, host.disk_read_bytes_s, host.net_rx_bytes_s, host.processes) == (None, None, None, None)


def test_cpu_stall_is_unknown_on_a_kernel_without_pressure_files(root):
    for path in (root / "pressure").iterdir():
        path.unlink()

    assert tick(HostSampler(Context(proc=str(root))), 1.0).cpu_stall_pct is None


def test_rates_need_two_ticks_and_exclude_loopback_traffic(root):
    sampler = HostSampler(Context(proc=str(root)))

    count(root, 0, 0)
    first = tick(sampler, 10.0)
    count(root, 8, 600, cpu="cpu 130 4 58 850 58 0 0 0 20 1")
    second = tick(sampler, 12.0)

    assert (first.cpu_pct, first.disk_read_bytes_s, first.net_rx_bytes_s) == (None, None, None)
    assert (second.cpu_pct, second.disk_read_bytes_s, second.net_rx_bytes_s) == (42.0, 2048.0, 300.0)


def test_processor_that_is_switched_off_makes_no_share_negative(root):
    sampler = HostSampler(Context(proc=str(root)))
    count(root, 0, 0)
    tick(sampler, 10.0)

    count(root, 0, 0, cpu="cpu 60 0 60 810 40 0 0 0 0 0")

    assert tick(sampler, 11.0).cpu_pct == 50.0


@pytest.mark.parametrize("text", ["", "cpu\n", "an unknown line\n"])
def test_counters_that_cannot_be_read_leave_other_metrics_intact(root, text):
    sampler = HostSampler(Context(proc=str(root)))
    for now in (10.0, 11.0):
        count(root, 0, 0)
        (root / "diskstats").write_text(text)
        (root / "stat").write_text(text)
        host = tick(sampler, now)

    assert (host.disk_read_bytes_s, host.net_rx_bytes_s, host.cpu_pct) == (None, 0.0, None)


def test_counter_reset_produces_no_rate():
    rates = Rates()
    rates.since_last(1.0, {("rx", "eth0"): 1000, ("rx", "eth1"): 50})

    assert rates.since_last(2.0, {("rx", "eth0"): 10, ("rx", "eth1"): 80}) == {"rx": 30.0}
    assert rates.since_last(3.0, {("rx", "eth0"): 5}) == {"rx": None}


def test_counters_of_this_machine_are_those_of_psutil(monkeypatch):
    psutil = pytest.importorskip("psutil")
    sampler = HostSampler(Context())
    tick(sampler, 1.0)
    seen = {}
    monkeypatch.setattr(sampler._rates, "since_last", lambda now, counters: seen.update(counters) or {})

    before = psutil.net_io_counters(pernic=True, nowrap=False), psutil.disk_io_counters(perdisk=True, nowrap=False)
    tick(sampler, 2.0)
    after = psutil.net_io_counters(pernic=True, nowrap=False), psutil.disk_io_counters(perdisk=True, nowrap=False)

    fields = {"net_rx_bytes_s": (0, "bytes_recv"), "net_tx_bytes_s": (0, "bytes_sent"),
              "disk_read_bytes_s": (1, "read_bytes"), "disk_write_bytes_s": (1, "write_bytes")}  # fmt: skip
    for (metric, name), value in seen.items():
        source, field = fields[metric]
        assert getattr(before[source][name], field) <= value <= getattr(after[source][name], field), (metric, name)


def test_cpu_share_without_a_counted_tick_is_unknown(root):
    sampler = HostSampler(Context(proc=str(root)))
    count(root, 0, 0)
    assert [tick(sampler, now).cpu_pct for now in (10.0, 10.001)] == [None, None]


def test_cpu_share_of_this_machine_is_a_percentage():
    sampler = HostSampler(Context())
    tick(sampler, 1.0)
    shares = []
    while not shares or shares[-1] is None:  # until the kernel's counter moves, every 10 ms
        shares.append(tick(sampler, 2.0).cpu_pct)
    assert 0.0 <= shares[-1] <= 100.0
