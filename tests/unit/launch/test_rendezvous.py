"""Rendezvous address: a network shared by all nodes, never one inside a single machine."""

from __future__ import annotations

import pytest
from builders import an_answer

from gconsole.launch.rendezvous import NoRendezvous, choose_rendezvous


def test_ssh_network_is_preferred_unless_an_interface_is_given():
    both = {
        name: an_answer(1, ssh_address=f"10.0.0.{n}",
                        addresses=(("ib0", f"192.168.0.{n}", 24), ("eth0", f"10.0.0.{n}", 24)))
        for n, name in enumerate("ab", 1)
    }  # fmt: skip
    found = choose_rendezvous(["a", "b"], both)
    assert (found.address, found.interfaces) == ("10.0.0.1", {"a": "eth0", "b": "eth0"})
    over = choose_rendezvous(["a", "b"], both, interface="ib0")
    assert (over.address, over.interfaces["b"]) == ("192.168.0.1", "ib0")


def test_container_bridges_are_not_used_as_a_shared_network():
    docker = ("docker0", "172.17.0.1", 16)
    apart = {
        name: an_answer(1, addresses=(docker, ("eth0", f"10.{n}.0.1", 24)), ssh_address=None)
        for n, name in enumerate("ab")
    }
    with pytest.raises(NoRendezvous, match="choose one with --interface"):
        choose_rendezvous(["a", "b"], apart)


def test_nodes_in_different_networks_use_the_ssh_address_with_a_warning():
    apart = {
        name: an_answer(1, addresses=(("eth0", f"10.{n}.0.1", 24),), ssh_address=f"10.{n}.0.1")
        for n, name in enumerate("ab")
    }
    found = choose_rendezvous(["a", "b"], apart)
    assert (found.address, found.interfaces) == ("10.0.0.1", {"a": "eth0", "b": "eth0"})
    assert "different networks" in found.warning


def test_a_job_on_one_node_needs_no_network():
    assert choose_rendezvous(["a"], {"a": an_answer(1, addresses=())}).address == "127.0.0.1"


def test_nodes_that_share_a_loopback_use_it_for_rendezvous():
    local = {n: an_answer(1, addresses=(("lo", "127.0.0.1", 8),), ssh_address=f"127.0.0.{n}") for n in "34"}
    assert choose_rendezvous(["3", "4"], local).address == "127.0.0.3"


def test_missing_interface_is_reported_with_its_node():
    with pytest.raises(NoRendezvous, match="no address on interface ib0 of b"):
        choose_rendezvous(
            ["a", "b"], {"a": an_answer(1, addresses=(("ib0", "10.0.0.1", 8),)), "b": an_answer(2)}, interface="ib0"
        )
