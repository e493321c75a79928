"""Checks whether network, PID, UTS and mount namespaces work here, by creating and removing them."""

import sys

from . import claims, network
from .namespaces import start_init


def run() -> None:
    """Raise OSError with the system's message if a node cannot be created."""
    claim = claims.claim()
    name = f"{claim.prefix}n0"
    try:
        path = network.add_netns(name)
        try:
            network.ip_batch(
                [
                    f"link add {claim.prefix}b0 group {claim.link_group} type bridge",
                    f"link add {claim.prefix}v0 group {claim.link_group} type veth peer name eth0 netns {name}",
                ]
            )
            init = start_init(path, [sys.executable, "-I", "-S", "-c", "import os; assert os.getpid() == 1"])
            if init.wait(timeout=90) != 0:
                raise OSError("a new PID namespace has no process 1")
        finally:
            network.delete_netns([name])
            network.delete_links(claim.link_group)
    finally:
        claim.release()
