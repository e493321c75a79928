"""GPU machines as scenario lines. The figures are invented, in the range of such cards."""

GIB = 1 << 30


def card(name: str, memory_gib: int) -> dict[str, object]:
    """Values that every data centre card reports."""
    return {
        "gpu.name": name,
        "gpu.serial": "1650000000001",
        "gpu.vbios": "96.00.A5.00.01",
        "gpu.util": "97 41",
        "gpu.memory": f"{memory_gib * GIB} {memory_gib * GIB // 2}",
        "gpu.bar1": f"{128 * GIB} {GIB}",
        "gpu.power": 512345,
        "gpu.power_limit": 700000,
        "gpu.power_default": 700000,
        "gpu.power_range": "200000 700000",
        "gpu.temp": 61,
        "gpu.threshold.1": 95,
        "gpu.threshold.2": 105,
        "gpu.sram_exceeded": 0,
        "gpu.clock.1": 1755,
        "gpu.clock.2": 2619,
        "gpu.clock.3": 1545,
        "gpu.max_clock.1": 1980,
        "gpu.app_clock.1": 1980,
        "gpu.app_clock_default.1": 1980,
        "gpu.max_clock.2": 2619,
        "gpu.max_clock.3": 1545,
        "gpu.pstate": 0,
        "gpu.reasons": 0,
        "gpu.encoder": "0 167000",
        "gpu.decoder": "3 167000",
        "gpu.pcie_gen": 5,
        "gpu.pcie_width": 16,
        "gpu.pcie_gen_max": 5,
        "gpu.pcie_width_max": 16,
        "gpu.affinity": 0x0F0F,
        "gpu.capability": "9 0",
        "gpu.ecc_mode": "1 1",
        "gpu.persistence": 1,
        "gpu.compute_mode": 0,
        "gpu.field.3": 0,
        "gpu.field.4": 0,
        "gpu.field.5": 12,
        "gpu.field.6": 0,
        "gpu.field.82": "u32:77",
        "gpu.field.83": 5_000_000,
        "gpu.field.94": "u32:0",
        "gpu.field.142": "u32:0",
        "gpu.field.143": "u32:0",
        "gpu.field.144": "u32:0",
        "gpu.field.145": "u32:0",
        "gpu.field.74": 0,
        "gpu.field.76": 0,
        "gpu.field.269": 0,
        "gpu.field.270": 0,
        "gpu.field.271": 0,
        "gpu.field.230": "u32:0",
    }


def machine(count: int, lines: dict[str, object]) -> dict[str, object]:
    found = {"driver": "580.126.09", "cuda": 13000, "count": count, **lines}
    for index in range(count):
        found[f"gpu{index}.uuid"] = f"GPU-0000000{index}-aaaa-bbbb-cccc-000000000000"
        found[f"gpu{index}.pci"] = f"00000000:{0x10 + index:02X}:00.0"
    return found


def hgx_h100() -> dict[str, object]:
    """Eight H100 behind NVSwitches: 18 links each, GPM, a fabric."""
    lines = card("NVIDIA H100 80GB HBM3", 80)
    lines |= {
        "gpu.fabric": "3 1 0 20906",
        "gpu.margin": 27,
        "gpu.mig": "0 0",
        "gpu.gpm.2": 88.5,
        "gpu.gpm.3": 40.25,
        "gpu.gpm.5": 61.0,
        "gpu.gpm.10": 33.0,
        "gpu.gpm.20": 100.0,
        "gpu.gpm.21": 200.0,
        "gpu.field.91": "u32:18",
        "gpu.field.138@all": 1_000_000,
        "gpu.field.139@all": 2_000_000,
        "gpu.field.138": 1000,
        "gpu.field.139": 2000,
        "gpu.field.165": "u32:1",
        "gpu.field.166": "u32:4",
        "gpu.field.164": "u32:26562",
        "gpu.field.161": 0,
        "gpu.field.162": 0,
        "gpu.field.163": 0,
        "gpu.remote_type": 2,
        "gpu.p2p": 0,
    }
    lines |= {f"gpu.remote_pci.{link}": f"00000000:{0x05 + link % 4:02X}:00.0" for link in range(18)}
    return machine(8, lines | ancestors(8, per_bridge=2))


def hgx_b200() -> dict[str, object]:
    """Eight B200 behind NVSwitches: other NVLink error counters than Hopper has, traffic of links in bytes."""
    lines = hgx_h100() | {"gpu.name": "NVIDIA B200", "gpu.capability": "10 0", "gpu.field.164": "u32:50000"}
    lines |= {f"gpu.field.{number}": 0 for number in (*range(201, 216), 219, 221)}
    return {key: value for key, value in lines.items() if not key.startswith(("gpu.field.16", "gpu.field.13"))
            or key.endswith(("164", "165", "166"))}  # fmt: skip


def ancestors(count: int, per_bridge: int = 1) -> dict[str, object]:
    """The first half of the GPUs on one NUMA node, the rest on another; `per_bridge` GPUs share a PCIe bridge."""
    found: dict[str, object] = {}
    for low in range(count):
        for high in range(low + 1, count):
            near = low // per_bridge == high // per_bridge
            found[f"gpu{low}.ancestor.{high}"] = 10 if near else 40 if 2 * low // count == 2 * high // count else 50
    return found


def bridged() -> dict[str, object]:
    """Four A100 PCIe cards in pairs, each pair with NVLink bridges: twelve links within a pair, none across."""
    lines = card("NVIDIA A100 80GB PCIe", 80) | {"gpu.capability": "8 0", "gpu.pcie_gen": 4, "gpu.pcie_gen_max": 4}
    lines |= {"gpu.field.91": "u32:12",
              "gpu.field.165": "u32:1", "gpu.field.166": "u32:3", "gpu.field.164": "u32:25000",
              "gpu.remote_type": 0, "gpu.p2p": 0, "gpu.p2p.2": 5}  # fmt: skip
    for index in range(4):
        lines[f"gpu{index}.remote_pci"] = f"00000000:{0x10 + (index ^ 1):02X}:00.0"
        if index % 2 == 0:
            lines[f"gpu{index}.p2p.2.{index + 1}"] = 0
    return machine(4, lines | ancestors(4))


def pcie_only() -> dict[str, object]:
    """Four L40S: no NVLink, no GPM, PCIe traffic only from the slow call."""
    lines = card("NVIDIA L40S", 45)
    lines |= {"gpu.fan": 55, "gpu.pcie_rx": 4096, "gpu.pcie_tx": 1024, "gpu.capability": "8 9"}
    lines |= {"gpu.p2p": 1} | ancestors(4)  # no peer-to-peer on this chipset
    return machine(4, lines)


def nothing_supported() -> dict[str, object]:
    """Two GPUs that report their identity and nothing else."""
    return machine(2, {})


def mig() -> dict[str, object]:
    """One GPU with two MIG instances: no utilisation of its own, the instances have memory and GPM."""
    lines = card("NVIDIA H100 80GB HBM3", 80)
    del lines["gpu.util"]
    lines |= {
        "gpu.mig": "1 1",
        "gpu.migs": 7,
        "gpu.gpm.2": 50.0,
        "mig.name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "mig.memory": f"{40 * GIB} {GIB}",
        "mig.compute_instance": 0,
        "gpu0mig0.uuid": "MIG-1",
        "gpu0mig0.gpu_instance": 1,
        "gpu0mig0.gpm.2": 25.0,
        "gpu0mig2.uuid": "MIG-2",
        "gpu0mig2.gpu_instance": 2,
        "gpu0mig2.gpm.2": 75.0,
        "gpu0mig2.compute.0": f"4242 {GIB}",
    }
    return machine(1, lines)
