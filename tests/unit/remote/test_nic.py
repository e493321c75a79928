"""Network port sampler on a fake sysfs."""

import shutil

import pytest
from fake_proc import check

from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.nic import NicSampler


def write(folder, **files):
    for name, value in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def pci(sys, address, numa):
    place = sys / "devices/pci0000:00" / address
    write(place, numa_node=numa)
    return place


def rdma_port(sys, name="mlx5_0", **files):
    device = sys / "class/infiniband" / name
    port = device / "ports/1"
    write(port, state="4: ACTIVE", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)", link_layer="InfiniBand",
          gids__0="fe80::1", counters__port_rcv_data=1000, counters__port_xmit_data=2000,
          counters__port_rcv_packets=10, counters__port_xmit_packets=20, counters__symbol_error=0,
          counters__link_downed=1, hw_counters__np_cnp_sent=5, **files)  # fmt: skip
    (device / "device").symlink_to(pci(sys, "0000:18:00.0", 1))
    return port


def interface(sys, name, real=True, **files):
    place = sys / "class/net" / name
    write(place, type=1, operstate="up", speed=25000, statistics__rx_bytes=0, statistics__tx_bytes=0, **files)
    if real:
        (place / "device").symlink_to(pci(sys, "0000:3b:00.0", -1))
    return place


@pytest.fixture
def sampler(tmp_path):
    context = Context()
    context.sys = str(tmp_path)
    return NicSampler(context)


def tick(sampler, now):
    return [check(kind, fields) for kind, fields in sampler.tick(now) if kind == "nic"]


def test_rdma_port_reports_location_rate_and_traffic(sampler, tmp_path):
    port = rdma_port(tmp_path)
    sampler.start()
    tick(sampler, 100.0)
    write(port, counters__port_rcv_data=1000 + 500, counters__port_xmit_packets=20 + 6)

    (nic,) = tick(sampler, 102.0)

    assert (nic.device, nic.port, nic.rdma, nic.state, nic.physical_state) == ("mlx5_0", 1, True, "active", "linkup")
    assert (nic.rate_bytes_s, nic.link_layer, nic.gid) == (50e9, "InfiniBand", "fe80::1")
    assert (nic.pci_bus_id, nic.numa_node) == ("0000:18:00.0", 1)
    assert (nic.rx_bytes_s, nic.tx_bytes_s, nic.tx_packets_s) == (1000.0, 0.0, 3.0)
    assert (nic.link_downed, nic.cnp_sent, nic.out_of_sequence) == (1, 5, None)
    sampler.stop()


def test_error_counters_are_totals_with_growth_since_the_last_read(sampler, tmp_path):
    port = rdma_port(tmp_path)
    sampler.start()
    tick(sampler, 100.0)
    write(port, counters__symbol_error=7, state="1: DOWN")

    soon, later, after = (tick(sampler, now)[0] for now in (101.0, 105.0, 106.0))

    assert (soon.symbol_errors, soon.state, soon.grown) == (0, "active", {})
    assert (later.symbol_errors, later.state, later.grown) == (7, "down", {"symbol_errors": 7})
    assert (after.symbol_errors, after.grown) == (7, {})
    sampler.stop()


def test_physical_interface_is_reported_and_a_virtual_one_is_not(sampler, tmp_path):
    interface(tmp_path, "eth0", carrier_down_count=2)
    interface(tmp_path, "veth1", real=False)
    sampler.start()

    (nic,) = tick(sampler, 100.0)

    assert (nic.device, nic.rdma, nic.state, nic.rate_bytes_s) == ("eth0", False, "up", 3.125e9)
    assert (nic.numa_node, nic.link_downed, nic.rx_bytes_s) == (None, 2, None)
    sampler.stop()


def test_the_speed_of_a_link_that_is_down_is_unknown(sampler, tmp_path):
    interface(tmp_path, "eth0")
    write(tmp_path / "class/net/eth0", speed=-1, operstate="down")
    sampler.start()

    (nic,) = tick(sampler, 100.0)

    assert (nic.state, nic.rate_bytes_s) == ("down", None)
    sampler.stop()


def test_unplugged_port_is_reported_gone_and_a_new_one_is_found(sampler, tmp_path):
    rdma_port(tmp_path)
    sampler.start()
    tick(sampler, 100.0)
    shutil.rmtree(tmp_path / "class/infiniband/mlx5_0")
    gone = tick(sampler, 101.0)
    interface(tmp_path, "eth9")

    found = tick(sampler, 161.0)

    assert [(nic.device, nic.state) for nic in gone] == [("mlx5_0", "gone")]
    assert [nic.device for nic in found] == ["eth9"]
    sampler.stop()


def test_nic_sampler_is_unavailable_on_a_node_without_ports(sampler):
    with pytest.raises(Unavailable):
        sampler.start()
