"""How simulated GPUs are connected: a machine of the usual kind, marked SIM like everything about them.

Two GPUs behind a PCIe switch, two switches a NUMA node, eighteen NVLinks from each GPU to four NVSwitches.
"""

LINKS, SWITCHES = 18, 4
_PER_SWITCH, _PER_NUMA = 2, 4
_NVLINK_VERSION, _SWITCH = 4, 2
_PIX, _NODE, _SYS = 10, 40, 50


class Values(object):
    """A struct of NVML's."""

    def __init__(self, **values):
        self.__dict__.update(values)


class SimulatedPlaces(object):
    """Stands in for `pci.Places`; `addresses` are those of the GPUs, in the order of their indices."""

    simulated = True

    def __init__(self, addresses):
        self._addresses = list(addresses)

    def of(self, address):
        index = self._addresses.index(address)
        numa, switch = index // _PER_NUMA, index // _PER_SWITCH
        fields = {
            "via": ["0000:%02x:02.%x" % (0xC0 + switch, index % _PER_SWITCH), "0000:%02x:01.0" % (0xA0 + switch),
                    "0000:%02x:00.0" % (0x80 + switch), "pci0000:%02x" % (0x80 + switch)],
            "gen": 5, "width": 16, "gen_max": 5, "width_max": 16, "uplink_gen": 5, "uplink_width": 16,
            "cpus": "%d-%d" % (48 * numa, 48 * numa + 47),
        }  # fmt: skip
        return fields, numa, {}

    def distances(self):
        nodes = range((len(self._addresses) + _PER_NUMA - 1) // _PER_NUMA)
        return {node: {other: 10 if node == other else 21 for other in nodes} for node in nodes}


class SimulatedTopology(object):
    """The part of pynvml that the topology sampler uses. `NVMLError` and devices with an `index` are the others'."""

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        if one.index // _PER_NUMA != other.index // _PER_NUMA:
            return _SYS
        return _PIX if one.index // _PER_SWITCH == other.index // _PER_SWITCH else _NODE

    def nvmlDeviceGetP2PStatus(self, one, other, index):
        return 0

    def nvmlDeviceGetNvLinkState(self, device, link):
        self._check(link)
        return 1

    def nvmlDeviceGetNvLinkVersion(self, device, link):
        self._check(link)
        return _NVLINK_VERSION

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device, link):
        self._check(link)
        return _SWITCH

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device, link):
        self._check(link)
        return Values(busId="00000000:%02X:00.0" % (0x05 + link % SWITCHES))

    def _check(self, link):
        if not 0 <= link < LINKS:
            raise self.NVMLError("Invalid Argument")
