"""Files of accelerators in sysfs and output of their vendors' tools, written after documents; none is of a device.

Each constant names its document. Where a document shows no value, a plausible one was put in.
"""

import json

GIB = 1 << 30

#: An AMD Instinct MI300X. Documentation/gpu/amdgpu (driver-misc, thermal, ras) and Documentation/hwmon of the kernel:
#: mem_info_*, gpu_busy_percent, unique_id, pcie_replay_count, ras/*_err_count, ras/gpu_vram_bad_pages, hwmon files.
AMD = {
    "vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "unique_id": "8c9d0e1f2a3b4c5d", "numa_node": "1",
    "product_name": "AMD Instinct MI300X OAM", "serial_number": "692251000123", "vbios_version": "113-M3000100-102",
    "mem_info_vram_total": 192 * GIB, "mem_info_vram_used": 3 * GIB, "mem_info_vis_vram_used": 2 * GIB,
    "gpu_busy_percent": 97, "mem_busy_percent": 41, "current_link_width": 16, "max_link_width": 16,
    "local_cpulist": "96-191", "ras/umc_err_count": "ue: 2\nce: 7", "ras/gfx_err_count": "ue: 1\nce: 0",
    "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P", "pcie_replay_count": 5,
    "hwmon/hwmon5/power1_input": 512000000, "hwmon/hwmon5/power1_cap": 750000000,
    "hwmon/hwmon5/temp1_input": 60000, "hwmon/hwmon5/temp1_label": "edge",
    "hwmon/hwmon5/temp2_input": 71000, "hwmon/hwmon5/temp2_label": "junction", "hwmon/hwmon5/temp2_crit": 100000,
    "hwmon/hwmon5/temp3_input": 55000, "hwmon/hwmon5/temp3_label": "mem", "hwmon/hwmon5/freq1_input": 2100000000,
    "hwmon/hwmon5/freq2_input": 1300000000,
}  # fmt: skip

#: An Intel Data Center GPU Max under xe. Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and
#: sysfs-class-drm-xe, Documentation/PCI/pcieaer-howto (aer_dev_correctable).
XE = {
    "vendor": "0x8086", "device": "0x0bd5", "class": "0x038000", "tile0/physical_vram_size_bytes": 64 * GIB,
    "tile1/physical_vram_size_bytes": 64 * GIB, "tile0/gt0/freq0/act_freq": 1600, "tile0/gt0/freq0/max_freq": 1600,
    "tile0/gt0/gtidle/idle_residency_ms": 1000, "tile1/gt0/gtidle/idle_residency_ms": 1000,
    "hwmon/hwmon2/power1_max": 0, "hwmon/hwmon2/power2_max": 600000000, "hwmon/hwmon2/power1_cap": 900000000,
    "hwmon/hwmon2/energy1_input": 5_000_000_000, "hwmon/hwmon2/temp2_input": 48000, "hwmon/hwmon2/temp3_input": 52000,
    "aer_dev_correctable": "RxErr 0\nBadTLP 3\nBadDLLP 0\nRollover 1\nTimeout 2\nNonFatalErr 0\nTOTAL_ERR_COR 6",
}  # fmt: skip

#: An Intel Data Center GPU Flex under i915. Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and the files
#: below gt/ of i915 (intel_gt_sysfs_pm.c).
I915 = {
    "vendor": "0x8086", "device": "0x56c0", "class": "0x038000", "drm/card1/lmem_total_bytes": 16 * GIB,
    "gt/gt0/rps_RP0_freq_mhz": 2050, "gt/gt0/rps_act_freq_mhz": 1950, "gt/gt0/rc6_residency_ms": 4000,
    "hwmon/hwmon3/energy1_input": 1_000_000, "hwmon/hwmon3/power1_max": 150000000,
    "hwmon/hwmon3/power1_rated_max": 150000000, "hwmon/hwmon3/temp1_input": 51000,
}  # fmt: skip

#: An Intel Gaudi 2. Documentation/ABI/testing/sysfs-driver-habanalabs: files of the accel device.
GAUDI = {
    "vendor": "0x1da3", "device": "0x1020", "class": "0x120000", "accel/accel0/device_type": "GAUDI2",
    "accel/accel0/status": "Operational", "accel/accel0/clk_cur_freq_mhz": 1600,
    "accel/accel0/clk_max_freq_mhz": 1650, "hwmon/hwmon1/temp1_input": 41000, "hwmon/hwmon1/power1_input": 130000000,
}  # fmt: skip

#: A TPU v5e of Google Cloud. PCI ids as in tpu-info (device.py); it is driven by vfio-pci.
TPU = {"vendor": "0x1ae0", "device": "0x0063", "class": "0x120000"}

#: fdinfo of a file of a GPU. Documentation/gpu/drm-usage-stats.rst and the example in xe_drm_client.c.
FDINFO = (
    "pos:\t0\nflags:\t0100002\nmnt_id:\t26\nino:\t685\ndrm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:3a:00.0\n"
    "drm-total-system:\t0\ndrm-shared-system:\t0\ndrm-total-vram0:\t4 MiB\ndrm-total-vram1:\t1024 KiB\n"
    "drm-resident-vram0:\t4 MiB\ndrm-total-gtt:\t192 KiB\ndrm-cycles-rcs:\t28257900\n"
)


def kfd_files(addresses: "list[int]") -> "dict[str, str]":
    """Files below /sys/class/kfd/kfd of GPUs at these `location_id`s, each pair of which xGMI connects.

    kfd_topology.c (node_show, iolink_show) and kfd_crat.h: type 11 is xGMI, 2 PCIe; bandwidths in MB/s.
    """
    files = {"topology/nodes/0/gpu_id": "0", "topology/nodes/0/properties": "cpu_cores_count 96"}
    for number, place in enumerate(addresses, 1):
        node = f"topology/nodes/{number}"
        files[f"{node}/gpu_id"] = str(50000 + number)
        files[f"{node}/properties"] = f"simd_count 1216\nlocation_id {place}\ndomain 0\nunique_id 10131415"
        ends = [(0, 2, 20, 0), *((other, 11, 15, 64000) for other in range(1, len(addresses) + 1) if other != number)]
        for link, (far, kind, weight, bandwidth) in enumerate(ends):
            files[f"{node}/io_links/{link}/properties"] = (
                f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {number}\nnode_to {far}\nweight {weight}\n"
                f"min_latency 0\nmax_latency 0\nmin_bandwidth {bandwidth}\nmax_bandwidth {bandwidth}\n"
                "recommended_transfer_size 0\nflags 1"
            )
    return files


#: `amd-smi static --json` and `amd-smi metric … --json`: names and units as in AMD SMI's changelog ("Added units of
#: measure to JSON output") and in the code of the tool of ROCm 6.2 (amdsmi_commands.py).
AMD_SMI_STATIC = [{
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002", "asic_serial": "0x8C9D0E1F2A3B4C5D"},
    "bus": {"bdf": "0000:85:00.0", "max_pcie_width": 16},
    "vbios": {"name": "AMD MI300X", "version": "022.040.003.041.000001"},
    "limit": {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 700, "unit": "W"},
              "slowdown_hotspot_temperature": {"value": 100, "unit": "C"},
              "slowdown_vram_temperature": {"value": 105, "unit": "C"}},
    "driver": {"name": "amdgpu", "version": "6.8.5"},
    "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
}]  # fmt: skip
AMD_SMI_METRIC = [{
    "gpu": 0,
    "usage": {"gfx_activity": {"value": 96, "unit": "%"}, "umc_activity": "N/A"},
    "power": {"socket_power": {"value": 511, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
    "temperature": {"edge": "N/A", "hotspot": {"value": 70, "unit": "C"}, "mem": {"value": 54, "unit": "C"}},
    "ecc": {"total_correctable_count": 9, "total_uncorrectable_count": 3, "total_deferred_count": 0,
            "cache_correctable_count": 2, "cache_uncorrectable_count": 1},
    "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 3072, "unit": "MB"}},
}]  # fmt: skip


def amd_smi(rows: object, since_rocm_7: bool = False) -> bytes:
    """That output; since ROCm 7 the list is in an object."""
    return json.dumps({"gpu_data": rows} if since_rocm_7 else rows, indent=4).encode()


#: `hl-smi --query-aip=… --format=csv,noheader`, in the order of `GAUDI_QUERY`. System Management Interface Tool of the
#: Gaudi documentation, which lists the names; units as other programs that read it expect them.
HL_SMI = (
    b"0000:19:00.0, 0, HL-225, 01P0-HL2080A0-15-TF8A81-03-07-03, AN22050123, 1.17.1-78932ae, 5, 63 %, 98304 MiB, "
    b"24576 MiB, 42 C, 131 W, 0, 1, 4, 2, Enabled\n"
)
