"""Host metrics from /proc alone and with psutil."""

from types import SimpleNamespace

import pytest
from fake_proc import check

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.host import HostSampler, Rates

MEMINFO = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"


class FakePsutil:
    """Fake psutil counters."""

    def __init__(self):
        self.read = self.received = 0

    def cpu_percent(self, interval):
        return 42.0

    def disk_io_counters(self, perdisk, nowrap):
        return {"gconsole-no-such-disk": SimpleNamespace(read_bytes=self.read, write_bytes=0)}

    def net_io_counters(self, pernic, nowrap):
        return {"lo": SimpleNamespace(bytes_recv=10**9, bytes_sent=10**9),
                "gconsole-eth9": SimpleNamespace(bytes_recv=self.received, bytes_sent=0)}  # fmt: skip


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


def test_without_psutil_only_metrics_from_proc_are_reported(root):
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
    psutil = FakePsutil()
    sampler = HostSampler(Context(proc=str(root), psutil=psutil))

    first = tick(sampler, 10.0)
    psutil.read, psutil.received = 4000, 600
    second = tick(sampler, 12.0)

    assert (first.cpu_pct, first.disk_read_bytes_s, first.net_rx_bytes_s) == (None, None, None)
    assert (second.cpu_pct, second.disk_read_bytes_s, second.net_rx_bytes_s) == (42.0, 2000.0, 300.0)


def test_failing_psutil_counter_leaves_other_metrics_intact(root):
    def broken(*_):
        raise RuntimeError("no /proc/diskstats here")

    psutil = FakePsutil()
    psutil.disk_io_counters = broken
    sampler = HostSampler(Context(proc=str(root), psutil=psutil))
    tick(sampler, 10.0)

    host = tick(sampler, 11.0)

    assert (host.disk_read_bytes_s, host.net_rx_bytes_s, host.cpu_pct) == (None, 0.0, 42.0)


def test_counter_reset_produces_no_rate():
    rates = Rates()
    rates.since_last(1.0, {("rx", "eth0"): 1000, ("rx", "eth1"): 50})

    assert rates.since_last(2.0, {("rx", "eth0"): 10, ("rx", "eth1"): 80}) == {"rx": 30.0}
    assert rates.since_last(3.0, {("rx", "eth0"): 5}) == {"rx": None}


def test_real_psutil_values_of_this_machine_are_plausible():
    psutil = pytest.importorskip("psutil")
    sampler = HostSampler(Context(psutil=psutil))
    tick(sampler, 1.0)

    host = tick(sampler, 2.0)

    assert 0.0 <= host.cpu_pct <= 100.0
    assert host.net_rx_bytes_s is None or host.net_rx_bytes_s >= 0.0
