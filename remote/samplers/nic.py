"""Network ports from sysfs: RDMA ports and physical Ethernet interfaces."""

import errno
import os

from ..proc.pci import numa_node
from ..proc.procfs import read_number, read_text
from .base import Counters, Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .base import Context, Fact, Fields

#: Seconds between two reads of state, rate and error counters, each of which is a firmware query on RDMA cards.
SLOW_S = 5.0
#: Seconds between two scans for new ports.
FIND_S = 60.0
#: Upper limit of reported ports (nodes may have hundreds of virtual functions).
MAX_PORTS = 64
#: Bits per byte: link speeds are in bits per second.
_BITS = 8.0

#: (field of the record, file, unit) of an RDMA port; InfiniBand counts data in words of four bytes.
_RDMA_TRAFFIC = (
    ("rx_bytes_s", "counters/port_rcv_data", 4),
    ("tx_bytes_s", "counters/port_xmit_data", 4),
    ("rx_packets_s", "counters/port_rcv_packets", 1),
    ("tx_packets_s", "counters/port_xmit_packets", 1),
)
_RDMA_ERRORS = (
    ("symbol_errors", "counters/symbol_error"),
    ("link_downed", "counters/link_downed"),
    ("link_recoveries", "counters/link_error_recovery"),
    ("rx_errors", "counters/port_rcv_errors"),
    ("tx_discards", "counters/port_xmit_discards"),
    ("out_of_sequence", "hw_counters/out_of_sequence"),
    ("packet_seq_errors", "hw_counters/packet_seq_err"),
    ("ack_timeouts", "hw_counters/local_ack_timeout_err"),
    ("cnp_sent", "hw_counters/np_cnp_sent"),
    ("cnp_handled", "hw_counters/rp_cnp_handled"),
    ("ecn_marked", "hw_counters/np_ecn_marked_roce_packets"),
)
_ETHERNET_TRAFFIC = (
    ("rx_bytes_s", "statistics/rx_bytes", 1),
    ("tx_bytes_s", "statistics/tx_bytes", 1),
    ("rx_packets_s", "statistics/rx_packets", 1),
    ("tx_packets_s", "statistics/tx_packets", 1),
)
_ETHERNET_ERRORS = (
    ("rx_errors", "statistics/rx_errors"),
    ("tx_errors", "statistics/tx_errors"),
    ("rx_discards", "statistics/rx_dropped"),
    ("tx_discards", "statistics/tx_dropped"),
    ("link_downed", "carrier_down_count"),
)


class NicSampler(Sampler):
    """One `nic` record per port and tick. Rates are since the previous tick."""

    name = "nic"

    def __init__(self, context: "Context") -> None:
        super(NicSampler, self).__init__(context)
        self._ports: dict[str, _Port] = {}  # folder: _Port
        self._next_scan = 0.0
        self._count: int | None = None  # of the last `inventory`

    def start(self) -> None:
        """Find the ports. Raises Unavailable."""
        self._find()
        if not self._ports:
            raise Unavailable("no RDMA port and no physical Ethernet interface found", name="nic_none")

    def stop(self) -> None:
        """Close the counter files."""
        for port in self._ports.values():
            port.close()

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `nic` record per port."""
        if self._next_scan == 0.0:
            self._next_scan = now + FIND_S
        elif now >= self._next_scan:
            self._next_scan = now + FIND_S
            self._find()
        for folder, port in list(self._ports.items()):
            try:
                yield "nic", port.read(now)
            except OSError:
                port.close()  # unplugged, or its driver was unloaded
                del self._ports[folder]
                yield "nic", dict(port.identity, state="gone")
        if len(self._ports) != self._count:
            self._count = len(self._ports)
            yield "inventory", {"of": "nic", "count": self._count}

    def absence(self, error: "Unavailable") -> "list[Fact]":
        """A node without ports."""
        return [("inventory", {"of": "nic", "count": 0})]

    def _find(self) -> None:
        for folder, make in _ports(self.context.sys):
            if folder not in self._ports and len(self._ports) < MAX_PORTS:
                self._ports[folder] = make(folder)


def identities(sys: str) -> "Iterator[tuple[Fields, str]]":
    """(identity, folder of its device in sysfs) of every port, without opening its counters."""
    for folder, make in _ports(sys):
        port = make(folder)
        yield port.identity, port.device_folder


def _ports(sys: str) -> "Iterator[tuple[str, type[RdmaPort | EthernetPort]]]":
    """(folder, the class for it) of every port."""
    root = sys + "/class/infiniband"
    for device in _listed(root):
        for number in _listed("%s/%s/ports" % (root, device)):
            yield "%s/%s/ports/%s" % (root, device, number), RdmaPort
    root = sys + "/class/net"
    for name in _listed(root):
        folder = "%s/%s" % (root, name)
        if os.path.exists(folder + "/device") and read_text(folder + "/type") == "1":  # net/if_arp.h: Ethernet
            yield folder, EthernetPort


class _Port(object):
    """One port. `traffic` and `errors` are its counters; the files of `traffic` stay open, they are read each tick."""

    traffic: "tuple[tuple[str, str, int], ...]" = ()
    errors: "tuple[tuple[str, str], ...]" = ()

    def __init__(self, folder: str, device_folder: str) -> None:
        self.folder, self.device_folder = folder, device_folder
        self.identity: Fields = {
            "pci_bus_id": _pci_address(device_folder),
            "numa_node": numa_node(device_folder),
        }
        self._counters = Counters()
        self._files: dict[str, int] = {}
        self._slow_due = 0.0
        self._slow: Fields = {}

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}

    def read(self, now: float) -> "Fields":
        """The available fields of a `nic` record. Raises OSError if the port is gone."""
        os.stat(self.folder)
        gains: dict[str, int] = {}
        if now >= self._slow_due:
            self._slow_due = now + SLOW_S - 0.1
            self._slow = self.state()
            for field, name in self.errors:
                total = read_number("%s/%s" % (self.folder, name))
                if total is not None:
                    self._slow[field] = total
                    gained = self._counters.growth(field, total, 64)
                    if gained:
                        gains[field] = gained
        fields = dict(self.identity, **self._slow)
        for field, name, unit in self.traffic:
            count = self._count(name)
            rate = self._counters.rate(field, count, 64, now, unit) if count is not None else None
            if rate is not None:
                fields[field] = round(rate, 1)
        if gains:
            fields["grown"] = gains
        return {field: value for field, value in fields.items() if value is not None}

    def state(self) -> "Fields":
        """The fields that are read every SLOW_S."""
        return {}

    def _count(self, name: str) -> "int | None":
        fd = self._files.get(name)
        try:
            if fd is None:
                fd = self._files[name] = os.open("%s/%s" % (self.folder, name), os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(fd, 64, 0))
        except ValueError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.EACCES, errno.EOPNOTSUPP):
                return None  # a card or a driver without this counter
            raise


class RdmaPort(_Port):
    """A port of an InfiniBand or RoCE card."""

    traffic, errors = _RDMA_TRAFFIC, _RDMA_ERRORS

    def __init__(self, folder: str) -> None:
        device, _, number = folder.rpartition("/ports/")
        super(RdmaPort, self).__init__(folder, device + "/device")
        self.identity.update(device=device.rpartition("/")[2], port=int(number), rdma=True)

    def state(self) -> "Fields":
        """State, rate and addresses of the port."""
        rate = (read_text(self.folder + "/rate") or "").split()  # "400 Gb/sec (4X NDR)"
        return {
            "state": _word(read_text(self.folder + "/state")),
            "physical_state": _word(read_text(self.folder + "/phys_state")),
            "rate_bytes_s": float(rate[0]) * 1e9 / _BITS if rate[1:2] == ["Gb/sec"] else None,
            "link_layer": read_text(self.folder + "/link_layer"),
            "netdev": read_text(self.folder + "/gid_attrs/ndevs/0"),
            "gid": read_text(self.folder + "/gids/0"),
        }


class EthernetPort(_Port):
    """A physical Ethernet interface."""

    traffic, errors = _ETHERNET_TRAFFIC, _ETHERNET_ERRORS

    def __init__(self, folder: str) -> None:
        super(EthernetPort, self).__init__(folder, folder + "/device")
        name = folder.rpartition("/")[2]
        self.identity.update(device=name, netdev=name, port=0, rdma=False, link_layer="Ethernet")

    def state(self) -> "Fields":
        """State and rate of the interface."""
        megabits = read_number(self.folder + "/speed")  # -1 or not readable while the link is down
        return {
            "state": read_text(self.folder + "/operstate"),
            "rate_bytes_s": megabits * 1e6 / _BITS if megabits is not None and megabits > 0 else None,
        }


def _listed(folder: str) -> "list[str]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _word(text: "str | None") -> "str | None":
    """ "4: ACTIVE" → "active"."""
    return text.partition(":")[2].strip().lower() or None if text else None


def _pci_address(device_folder: str) -> "str | None":
    """PCI address of the device a link points to; None on another bus."""
    name = os.path.realpath(device_folder).rpartition("/")[2]
    return name if name.count(":") == 2 and "." in name else None
