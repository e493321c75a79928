"""A cluster of real SSH servers on this machine, for tests and benches.

    with Rig(nodes=4, name="t1") as rig:
        rig.write_hosts_toml(path)
        rank = rig.nodes[0].run(["python3", "train.py"])
        rig.nodes[1].down()

Three modes; the best one that works on this machine is used (`detect.py` explains the choice):

namespaces  root: each node has its own network, processes, hostname, boot id, /tmp, /run, /dev/shm and homes
loopback    no root: one OpenSSH server per node on 127.0.0.1; the nodes share one process table and one account
asyncssh    no OpenSSH: the same with asyncssh's server

A feature that a mode lacks raises `RigUnavailable`, whose text is the skip reason.
Only the standard library and asyncssh are imported here, never the product.
"""

from .agent import SshAgent
from .detect import MODES, Mode, RigUnavailable, missing_for, pick_mode
from .home import SshHome
from .kinds import KINDS, PASSWORD, Kind
from .node import Node
from .processes import Process
from .pythons import find_python
from .relay import Relay
from .rig import Rig
from .waiting import wait_until

__all__ = [
    "KINDS",
    "MODES",
    "PASSWORD",
    "Kind",
    "Mode",
    "Node",
    "Process",
    "Relay",
    "Rig",
    "RigUnavailable",
    "SshAgent",
    "SshHome",
    "find_python",
    "missing_for",
    "pick_mode",
    "wait_until",
]
