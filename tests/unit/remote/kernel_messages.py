"""Messages of the kernel and of drivers, one a format string: (source file, text, expected fault).

The fault is (class, severity, subject, pid); with "over" as the severity the message ends a fault. Versions are those
of the Linux kernel that prints the message so; where none is named, 4.18 to 6.12 do.
"""

Expected = tuple[str, str, str, int | None]

KERNEL_MESSAGES: list[tuple[str, str, Expected]] = [
    # -- memory
    (
        "mm/oom_kill.c 4.18",
        "Out of memory: Kill process 4711 (python3) score 912 or sacrifice child",
        ("oom_kill", "error", "python3", 4711),
    ),
    (
        "mm/oom_kill.c 5.3",
        "Out of memory: Killed process 4711 (python3) total-vm:103240kB, anon-rss:1kB, file-rss:0kB, "
        "shmem-rss:0kB, UID:1000 pgtables:220kB oom_score_adj:0",
        ("oom_kill", "error", "python3", 4711),
    ),
    (
        "mm/oom_kill.c 5.3",
        "Out of memory (oom_kill_allocating_task): Killed process 9 (a) total-vm:1kB, anon-rss:1kB",
        ("oom_kill", "error", "a", 9),
    ),
    (
        "mm/oom_kill.c",
        "Out of memory: Killed process 7 (a b) (c) total-vm:1kB, anon-rss:1kB",
        ("oom_kill", "error", "a b) (c", 7),
    ),
    (
        "mm/oom_kill.c 4.18",
        "Memory cgroup out of memory: Kill process 99 (pt_main_thread) score 1200 or sacrifice child",
        ("oom_kill_in_cgroup", "warning", "pt_main_thread", 99),
    ),
    (
        "mm/oom_kill.c 6.12",
        "Memory cgroup out of memory: Killed process 99 (python) total-vm:1kB, anon-rss:1kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0",
        ("oom_kill_in_cgroup", "warning", "python", 99),
    ),
    (
        "mm/page_alloc.c",
        "python3: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO)",
        ("allocation_failure", "warning", "python3", None),
    ),
    # -- crashes of programs
    (
        "arch/x86/mm/fault.c",
        "python3[812]: segfault at 0 ip 00007f1c sp 00007ffd error 4 in libtorch.so[7f1c+1000]",
        ("segfault", "warning", "python3", 812),
    ),
    (
        "arch/x86/mm/fault.c 6.1",
        "pt_main_thread[812]: segfault at 10 ip 0000 sp 0000 error 6 likely on CPU 3 (core 3)",
        ("segfault", "warning", "pt_main_thread", 812),
    ),
    (
        "arch/powerpc/mm/fault.c",
        "python[31]: segfault (11) at 0 nip 7fff lr 7fff code 1 in a.so[7f+1]",
        ("segfault", "warning", "python", 31),
    ),
    (
        "arch/arm64/kernel/traps.c",
        "python[31]: unhandled exception: DABT (lower EL), ESR 0x92000004, level 0 transl",
        ("segfault", "warning", "python", 31),
    ),
    (
        "arch/x86/kernel/traps.c",
        "traps: python[4] general protection fault ip:7f11 sp:7ffe error:0 in x.so[7f+1]",
        ("segfault", "warning", "python", 4),
    ),
    (
        "arch/x86/kernel/traps.c 4.18",
        "traps: python[4] general protection ip:7f11 sp:7ffe error:0 in x.so[7f+1]",
        ("segfault", "warning", "python", 4),
    ),
    (
        "arch/x86/kernel/traps.c",
        "traps: python[4] trap invalid opcode ip:7f11 sp:7ffe error:0 in x.so[7f+1]",
        ("segfault", "warning", "python", 4),
    ),
    (
        "arch/x86/kernel/traps.c",
        "traps: ray::train[5] trap divide error ip:7f sp:7f error:0 in x.so[7f+1]",
        ("segfault", "warning", "ray::train", 5),
    ),
    # -- the kernel itself
    (
        "kernel/hung_task.c",
        "INFO: task python3:40213 blocked for more than 120 seconds.",
        ("hung_task", "warning", "python3", 40213),
    ),
    (
        "kernel/hung_task.c",
        "INFO: task kworker/u64:3:1203 blocked for more than 241 seconds.",
        ("hung_task", "warning", "kworker/u64:3", 1203),
    ),
    (
        "kernel/watchdog.c",
        "watchdog: BUG: soft lockup - CPU#37 stuck for 22s! [python3:4711]",
        ("lockup", "error", "37", None),
    ),
    (
        "kernel/watchdog.c 3.10",
        "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:99]",
        ("lockup", "error", "3", None),
    ),
    (
        "kernel/watchdog_hld.c 4.18",
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12",
        ("lockup", "error", "12", None),
    ),
    ("kernel/watchdog.c 6.12", "watchdog: Watchdog detected hard LOCKUP on cpu 12", ("lockup", "error", "12", None)),
    ("kernel/rcu/tree_stall.h", "rcu: INFO: rcu_sched self-detected stall on CPU", ("lockup", "error", "", None)),
    ("kernel/rcu/tree_stall.h", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", ("lockup", "error", "", None)),
    (
        "kernel/rcu/tree_exp.h",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-... } 21 jiffies",
        ("lockup", "error", "", None),
    ),
    ("kernel/panic.c", "Kernel panic - not syncing: Fatal exception", ("kernel_bug", "error", "", None)),
    ("lib/bug.c", "kernel BUG at mm/slub.c:305!", ("kernel_bug", "error", "", None)),
    (
        "arch/x86/mm/fault.c",
        "BUG: unable to handle page fault for address: ffffa0b1c0de0000",
        ("kernel_bug", "error", "", None),
    ),
    (
        "arch/x86/mm/fault.c 4.18",
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000008",
        ("kernel_bug", "error", "", None),
    ),
    (
        "arch/x86/mm/fault.c 5.4",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        ("kernel_bug", "error", "", None),
    ),
    ("arch/x86/kernel/dumpstack.c", "Oops: 0002 [#1] SMP NOPTI", ("kernel_bug", "error", "", None)),
    ("arch/x86/kernel/dumpstack.c 6.9", "Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI", ("kernel_bug", "error", "", None)),
    ("arch/x86/kernel/traps.c 4.18", "general protection fault: 0000 [#1] SMP PTI", ("kernel_bug", "error", "", None)),
    (
        "arch/x86/kernel/traps.c 5.10",
        "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP",
        ("kernel_bug", "error", "", None),
    ),
    (
        "arch/arm64/mm/fault.c",
        "Unable to handle kernel paging request at virtual address ffff800008000000",
        ("kernel_bug", "error", "", None),
    ),
    ("arch/arm64/kernel/traps.c", "Internal error: Oops: 96000004 [#1] SMP", ("kernel_bug", "error", "", None)),
    # -- remote file systems
    ("net/sunrpc/clnt.c", "nfs: server filer01 not responding, still trying", ("nfs", "warning", "filer01", None)),
    ("net/sunrpc/clnt.c", "nfs: server 10.0.0.9 not responding, timed out", ("nfs", "warning", "10.0.0.9", None)),
    ("net/sunrpc/clnt.c", "nfs: server filer01 OK", ("nfs", "over", "filer01", None)),
    ("net/sunrpc/clnt.c", "lockd: server filer01 not responding, still trying", ("nfs", "warning", "filer01", None)),
    (
        "fs/nfs/nfs4state.c",
        "NFS: state manager: lease expired failed on NFSv4 server filer01 with error 5",
        ("nfs", "warning", "filer01", None),
    ),
    (
        "lustre/ptlrpc/import.c",
        "Lustre: lfs-OST0001-osc-ffff88: Connection to lfs-OST0001 (at 10.0.0.9@o2ib) was lost; "
        "in progress operations using this service will wait for recovery to complete",
        ("lustre", "warning", "lfs-OST0001-osc-ffff88", None),
    ),
    (
        "lustre/ptlrpc/import.c",
        "Lustre: lfs-OST0001-osc-ffff88: Connection restored to  (at 10.0.0.9@o2ib)",
        ("lustre", "over", "lfs-OST0001-osc-ffff88", None),
    ),
    (
        "lustre/ptlrpc/import.c",
        "LustreError: 167-0: lfs-MDT0000-mdc-ffff88: This client was evicted by lfs-MDT0000; in "
        "progress operations using this service will fail.",
        ("lustre", "warning", "lfs-MDT0000-mdc-ffff88", None),
    ),
    (
        "net/ceph/mon_client.c",
        "libceph: mon0 (1)10.0.0.1:6789 session lost, hunting for new mon",
        ("ceph", "warning", "mon0", None),
    ),
    ("net/ceph/mon_client.c", "libceph: mon0 (1)10.0.0.1:6789 session established", ("ceph", "over", "mon0", None)),
    ("fs/ceph/mds_client.c", "ceph: mds0 hung", ("ceph", "warning", "mds0", None)),
    (
        "fs/cifs/connect.c",
        r"CIFS: VFS: \\filer has not responded in 180 seconds. Reconnecting...",
        ("cifs", "warning", r"\\filer", None),
    ),
    # -- local file systems and disks
    (
        "fs/ext4/super.c",
        "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm ls: reading directory",
        ("file_system", "error", "nvme0n1p2", None),
    ),
    ("fs/ext4/super.c", "EXT4-fs (sda1): Remounting filesystem read-only", ("file_system", "error", "sda1", None)),
    (
        "fs/ext4/inode.c",
        "EXT4-fs (dm-0): This should not happen!! Data will be lost",
        ("file_system", "error", "dm-0", None),
    ),
    ("fs/jbd2/journal.c", "Aborting journal on device sda1-8.", ("file_system", "error", "sda1-8", None)),
    (
        "fs/xfs/xfs_buf.c",
        'XFS (dm-0): metadata I/O error in "xlog_iodone" at daddr 0x1f len 64 error 5',
        ("file_system", "error", "dm-0", None),
    ),
    (
        "fs/xfs/xfs_error.c",
        "XFS (dm-0): Corruption detected. Unmount and run xfs_repair",
        ("file_system", "error", "dm-0", None),
    ),
    (
        "fs/xfs/xfs_fsops.c 4.18",
        "XFS (sdb): Log I/O Error Detected. Shutting down filesystem",
        ("file_system", "error", "sdb", None),
    ),
    (
        "fs/xfs/xfs_fsops.c 6.1",
        "XFS (sdb): Filesystem has been shut down due to log error (0x2).",
        ("file_system", "error", "sdb", None),
    ),
    (
        "fs/btrfs/super.c",
        "BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
        ("file_system", "error", "sda1", None),
    ),
    (
        "fs/btrfs/messages.c 6.1",
        "BTRFS critical (device sda1: state EA): corrupt leaf: root=1 block=1 slot=1",
        ("file_system", "error", "sda1", None),
    ),
    ("block/blk-core.c 4.18", "print_req_error: I/O error, dev sda, sector 2048", ("disk", "error", "sda", None)),
    (
        "block/blk-core.c 5.10",
        "blk_update_request: I/O error, dev nvme1n1, sector 2048 op 0x1:(WRITE) flags 0x800",
        ("disk", "error", "nvme1n1", None),
    ),
    (
        "block/blk-mq.c 6.1",
        "I/O error, dev sdb, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
        ("disk", "error", "sdb", None),
    ),
    (
        "block/blk-mq.c",
        "blk_update_request: critical medium error, dev sdb, sector 99 op 0x0:(READ) flags 0x0",
        ("disk", "error", "sdb", None),
    ),
    ("fs/buffer.c", "Buffer I/O error on dev sda1, logical block 0, async page read", ("disk", "error", "sda1", None)),
    ("drivers/nvme/host/pci.c", "nvme nvme0: I/O 25 QID 3 timeout, aborting", ("disk", "error", "nvme0", None)),
    (
        "drivers/nvme/host/pci.c 6.8",
        "nvme nvme0: I/O tag 25 (1019) opcode 0x1 (I/O Cmd) QID 3 timeout, aborting req_op:WRITE(1) size:4096",
        ("disk", "error", "nvme0", None),
    ),
    (
        "drivers/nvme/host/pci.c",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        ("disk", "error", "nvme0", None),
    ),
    (
        "drivers/nvme/host/pci.c 6.1",
        "nvme nvme0: Disabling device after reset failure: -19",
        ("disk", "error", "nvme0", None),
    ),
    (
        "drivers/nvme/host/core.c 6.1",
        "nvme0n1: Read(0x2) @ LBA 1234, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
        ("disk", "error", "nvme0n1", None),
    ),
    ("drivers/nvme/host/tcp.c", "nvme nvme2: starting error recovery", ("disk", "error", "nvme2", None)),
    ("drivers/md/raid1.c", "md/raid1:md0: Disk failure on sda1, disabling device.", ("disk", "error", "md0", None)),
    # -- memory and processor errors
    (
        "drivers/edac/edac_mc.c",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        ("ecc_uncorrected", "error", "MC0", None),
    ),
    (
        "drivers/edac/edac_mc.c",
        "EDAC MC1: 3 CE memory scrubbing error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0)",
        ("ecc_corrected", "info", "MC1", None),
    ),
    (
        "arch/x86/kernel/cpu/mce/core.c",
        "mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 3: be00000000800400",
        ("machine_check", "error", "4", None),
    ),
    (
        "arch/x86/kernel/cpu/mce/core.c",
        "mce: [Hardware Error]: CPU 4: Machine Check: 0 Bank 3: be00000000800400",
        ("machine_check", "error", "4", None),
    ),
    (
        "arch/x86/kernel/cpu/mce/core.c",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010091",
        ("machine_check_corrected", "info", "0", None),
    ),
    (
        "arch/x86/kernel/cpu/mce/core.c",
        "mce: [Hardware Error]: Machine check events logged",
        ("machine_check_corrected", "info", "", None),
    ),
    (
        "arch/x86/kernel/cpu/mce/core.c",
        "mce: Uncorrected hardware memory error in user-access at 7f3f9c1000",
        ("machine_check", "error", "", None),
    ),
    (
        "drivers/edac/mce_amd.c",
        "[Hardware Error]: Uncorrected, software restartable error.",
        ("machine_check", "error", "", None),
    ),
    (
        "drivers/edac/mce_amd.c",
        "[Hardware Error]: Corrected error, no action required.",
        ("machine_check_corrected", "info", "", None),
    ),
    ("drivers/firmware/efi/cper.c", "{1}[Hardware Error]: event severity: fatal", ("machine_check", "error", "", None)),
    (
        "drivers/firmware/efi/cper.c",
        "{2}[Hardware Error]: event severity: corrected",
        ("machine_check_corrected", "info", "", None),
    ),
    (
        "mm/memory-failure.c",
        "Memory failure: 0x1f3a2b: Sending SIGBUS to python3:4711 due to hardware memory corruption",
        ("machine_check", "error", "python3", 4711),
    ),
    (
        "mm/memory-failure.c",
        "Memory failure: 0x1f3a2b: recovery action for dirty LRU page: Recovered",
        ("machine_check", "error", "", None),
    ),
    # -- PCIe
    (
        "drivers/pci/pcie/aer.c 4.18",
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        ("pcie_uncorrected", "error", "0000:40:01.1", None),
    ),
    (
        "drivers/pci/pcie/aer.c 6.8",
        "pcieport 0000:40:01.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:41:00.0",
        ("pcie_uncorrected", "error", "0000:40:01.1", None),
    ),
    (
        "drivers/pci/pcie/aer.c 4.18",
        "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transac"
        "tion Layer, id=4100(Requester ID)",
        ("pcie_uncorrected", "error", "0000:41:00.0", None),
    ),
    (
        "drivers/pci/pcie/aer.c 5.10",
        "pcieport 0000:40:01.1: AER: Multiple Corrected error received: 0000:41:00.0",
        ("pcie_corrected", "info", "0000:40:01.1", None),
    ),
    (
        "drivers/pci/pcie/aer.c 6.8",
        "pcieport 0000:40:01.1: AER: Correctable error message received from 0000:41:00.0",
        ("pcie_corrected", "info", "0000:40:01.1", None),
    ),
    (
        "drivers/pci/pcie/aer.c 6.8",
        "mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        ("pcie_corrected", "info", "0000:3b:00.0", None),
    ),
    (
        "drivers/pci/pcie/dpc.c",
        "pcieport 0000:c0:01.1: DPC: containment event, status:0x1f01 source:0x0000",
        ("pcie_uncorrected", "error", "0000:c0:01.1", None),
    ),
    (
        "drivers/pci/hotplug/pciehp_ctrl.c",
        "pcieport 0000:c0:01.1: pciehp: Slot(12): Link Down",
        ("pcie_link", "error", "0000:c0:01.1", None),
    ),
    # -- network
    (
        "drivers/net/ethernet/mellanox/mlx5/core/health.c",
        "mlx5_core 0000:3b:00.0: poll_health:739:(pid 0): device's health compromised - reached miss count",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/health.c",
        "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): Fatal error 1 detected",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/health.c 6.1",
        "mlx5_core 0000:3b:00.0: print_health_info:425:(pid 0): Heal"
        "th issue observed, High temperature, severity(3) ERROR:",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/cmd.c",
        "mlx5_core 0000:3b:00.0: wait_func:1142:(pid 99): QUERY_VPORT_COUNT"
        "ER(0x770) timeout. Will cause a leak of a command resource",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/events.c",
        "mlx5_core 0000:3b:00.0: temp_warn_event:141:(pid 0): High temperature on sensors with bit set 0 1",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/events.c",
        "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
        ("nic", "error", "0000:3b:00.0", None),
    ),
    (
        "net/sched/sch_generic.c 4.18",
        "NETDEV WATCHDOG: ens3f0 (mlx5_core): transmit queue 12 timed out",
        ("nic", "error", "ens3f0", None),
    ),
    (
        "net/sched/sch_generic.c 6.6",
        "ixgbe 0000:01:00.0 eth0: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5016 ms",
        ("nic", "error", "eth0", None),
    ),
    (
        "drivers/infiniband/hw/mlx5/cq.c",
        "infiniband mlx5_0: dump_cqe:288:(pid 4711): WC error: 12, Message: transport retry counter exceeded",
        ("rdma", "warning", "mlx5_0", None),
    ),
    (
        "drivers/infiniband/hw/mlx5/cq.c 4.18",
        "infiniband mlx5_2: mlx5_0:dump_cqe:277:(pid 4711): dump error cqe",
        ("rdma", "warning", "mlx5_2", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/en_main.c",
        "mlx5_core 0000:3b:00.0 ens3f0: Link down",
        ("link", "warning", "ens3f0", None),
    ),
    (
        "drivers/net/ethernet/mellanox/mlx5/core/en_main.c",
        "mlx5_core 0000:3b:00.0 ens3f0np0: Link up",
        ("link", "over", "ens3f0np0", None),
    ),
    (
        "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c",
        "ixgbe 0000:01:00.0 eth0: NIC Link is Down",
        ("link", "warning", "eth0", None),
    ),
    (
        "drivers/net/ethernet/intel/igb/igb_main.c",
        "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX",
        ("link", "over", "eth0", None),
    ),
    (
        "drivers/net/ethernet/intel/e1000e/netdev.c 4.18",
        "e1000e: eno1 NIC Link is Down",
        ("link", "warning", "eno1", None),
    ),
    ("drivers/net/ethernet/broadcom/tg3.c", "tg3 0000:02:00.0 eth1: Link is down", ("link", "warning", "eth1", None)),
    (
        "drivers/net/ethernet/broadcom/bnxt/bnxt.c",
        "bnxt_en 0000:19:00.0 enp25s0f0np0: NIC Link is Down",
        ("link", "warning", "enp25s0f0np0", None),
    ),
    ("drivers/net/phy/phy.c", "r8169 0000:03:00.0 enp3s0: Link is Down", ("link", "warning", "enp3s0", None)),
    (
        "drivers/net/bonding/bond_main.c",
        "bond0: (slave ens3f0): link status definitely down, disabling slave",
        ("link", "warning", "ens3f0", None),
    ),
    (
        "drivers/net/bonding/bond_main.c",
        "bond0: (slave ens3f0): link status definitely up, 100000 Mbps full duplex",
        ("link", "over", "ens3f0", None),
    ),
    (
        "net/netfilter/nf_conntrack_core.c",
        "nf_conntrack: nf_conntrack: table full, dropping packet",
        ("network_table", "warning", "", None),
    ),
    (
        "net/core/neighbour.c",
        "neighbour: arp_cache: neighbor table overflow!",
        ("network_table", "warning", "arp_cache", None),
    ),
    # -- heat
    (
        "arch/x86/kernel/cpu/mcheck/therm_throt.c 4.18",
        "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
        ("thermal", "warning", "CPU3", None),
    ),
    (
        "drivers/thermal/intel/therm_throt.c 5.6",
        "mce: CPU18: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
        ("thermal", "warning", "CPU18", None),
    ),
    ("drivers/thermal/intel/therm_throt.c", "CPU3: Core temperature/speed normal", ("thermal", "over", "CPU3", None)),
    (
        "drivers/thermal/thermal_core.c 4.18",
        "thermal thermal_zone0: critical temperature reached (105 C), shutting down",
        ("thermal", "warning", "thermal_zone0", None),
    ),
    (
        "drivers/thermal/thermal_core.c 6.1",
        "thermal thermal_zone0: acpitz: critical temperature reached, shutting down",
        ("thermal", "warning", "thermal_zone0", None),
    ),
    # -- GPUs and switches
    (
        "NVIDIA XID documentation",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        ("xid", "error", "0000:3b:00", None),
    ),
    (
        "NVIDIA XID documentation",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU "
        "Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f_00000000.",
        ("xid", "warning", "0000:3b:00", 4711),
    ),
    (
        "NVIDIA XID documentation",
        "NVRM: Xid (PCI:0000:41:00): 48, pid=1, An uncorrectable double bit error (DBE) has been "
        "detected on GPU in the framebuffer",
        ("xid", "error", "0000:41:00", 1),
    ),
    (
        "open-gpu-kernel-modules nv.c",
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
        ("gpu_driver", "error", "0000:3b:00.0", None),
    ),
    (
        "open-gpu-kernel-modules osinit.c",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        ("gpu_driver", "error", "0000:3b:00.0", None),
    ),
    (
        "NVIDIA Fabric Manager guide",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        ("sxid", "warning", "3", None),
    ),
    (
        "NVIDIA Fabric Manager guide",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        ("sxid", "error", "0", None),
    ),
    (
        "drivers/gpu/drm/amd/amdgpu",
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        ("gpu_driver", "error", "0000:c1:00.0", None),
    ),
]
