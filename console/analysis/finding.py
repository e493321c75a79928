"""Findings: the draft that analyses yield, and the catalogue of all kinds with their meaning, causes and remedies."""

from __future__ import annotations

from typing import Final

import msgspec

from ..records import Confidence, Severity


class FindingDraft(msgspec.Struct, frozen=True):
    """A finding without instants; `FindingTracker` turns it into a `Finding` record.

    Drafts with the same `id`, `culprits` and `job` are the same finding, whose text and evidence may change.
    """

    id: str  # stable, from the finding catalog; used by `--fail-on` and filters
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...]  # nodes (`node019`), GPUs (`node019:gpu4`), ranks (`rank 137`)
    text: str  # one sentence with figures and units
    evidence: tuple[str, ...] = ()  # each with record and field: `gpu.temp_c node019:gpu4 91`
    victims: tuple[str, ...] = ()  # affected, not at fault
    parts: tuple[str, ...] = ()  # affected parts of a culprit: NVLink numbers; `width`
    job: str | None = None  # the job that it is about, if it is about one


class FindingKind(msgspec.Struct, frozen=True):
    """One entry of the catalogue."""

    id: str  # stable; `--fail-on` and filters name it
    meaning: str  # one clause, in lower case
    cause: str  # usual causes, one or two sentences
    remedy: str  # what to do, in the imperative


FINDINGS: Final[tuple[FindingKind, ...]] = (
    FindingKind("gpu_lost", "the driver cannot reach a GPU",
        "The GPU fell off the PCIe bus (XID 79), lost power, or its driver crashed.",
        "Drain the node, reset the GPU or reboot; if it returns, have the GPU, its riser and its power checked."),
    FindingKind("driver_broken", "the driver of a node's GPUs cannot be used",
        "Driver and library of different versions after an update, a driver that is not loaded, hangs or crashes, or "
        "device files that the login user may not open.",
        "Follow the finding's remedy; drain the node, then reload the driver's modules or reboot."),
    FindingKind("gpu_missing", "the kernel lists a GPU that the driver does not have",
        "The driver failed to start the GPU, or the GPU is not bound to it.",
        "Read dmesg for the GPU's PCI address (of NVIDIA: NVRM: RmInitAdapter failed); reset or reboot, then have "
        "the GPU checked."),
    FindingKind("gpu_unusable", "the driver lists a GPU, but every call fails",
        "The GPU requires a reset, or its firmware (GSP) has stopped.",
        "End the programs on this GPU and reset it (NVIDIA: let gconsole close it with gconsole release NODE, then "
        "nvidia-smi --gpu-reset -i N); or reboot the node."),
    FindingKind("gpu_xid", "the driver reported an XID error",
        "A fault of the application (XID 13, 31), of the hardware (48, 79, 94, 95) or of NVLink (74, 144 to 150).",
        "Take the action in the finding's text, which follows NVIDIA's XID catalogue: fix the application, reset the "
        "GPU, reboot the node, or contact the vendor's support."),
    FindingKind("gpu_ecc", "uncorrectable or many corrected memory errors",
        "A memory cell or an SRAM of the GPU is failing.",
        "Reset the GPU so that rows are remapped; RMA it if uncorrectable errors return, or if its SRAM errors exceed "
        "the vendor's threshold."),
    FindingKind("gpu_remap_pending", "row remaps are pending until the GPU is reset",
        "The driver found faulty memory rows and replaces them at the next reset.",
        "Drain the node and reset the GPU (NVIDIA: gconsole release NODE, then nvidia-smi --gpu-reset) or reboot."),
    FindingKind("gpu_throttle", "GPU clocks throttled by heat or hardware under load",
        "Blocked airflow, a failed fan or pump, a power brake signal, or a lowered power cap.",
        "Check cooling and power delivery of the node; compare the throttle reasons on the GPU's page with its peers."),
    FindingKind("gpu_hot", "a GPU or its memory is at the temperature at which clocks are lowered",
        "Blocked airflow, a failed fan or pump, warm intake air, or a heat sink that lost contact.",
        "Check cooling of the node and compare with its peers; drain the node if the GPU is throttled."),
    FindingKind("gpu_slow_clock", "clocks far below their maximum under load without a reason from the driver",
        "Locked clocks (nvidia-smi -lgc), or a GPU that does not leave a low performance state.",
        "Compare nvidia-smi -q -d CLOCK,PERFORMANCE with a peer; reset locked clocks (nvidia-smi -rgc), or the GPU."),
    FindingKind("nvlink_fabric", "a GPU has not joined the NVLink fabric, or the fabric has a fault",
        "A fabric manager that does not run or has failed, an NVLink or NVSwitch that is down, or another firmware.",
        "Check the fabric manager (systemctl status nvidia-fabricmanager) and its log; reset the GPUs of the node."),
    FindingKind("gpu_settings", "persistence mode, ECC mode or power cap of a GPU differs from others of its model",
        "A node that was set up differently, or a mode that a reset or a reboot has changed.",
        "Set it as on the others (NVIDIA: nvidia-smi -pm, -e or -pl); a change of ECC mode needs a reset of the GPU."),
    FindingKind("gpu_straggler", "clock or power is far from its peers under the same load",
        "A GPU with a lower power cap, a hot spot, or a weaker chip.",
        "Compare power cap, temperature and application clocks with the peers; replace the node if these are equal."),
    FindingKind("gpu_memory_imbalance", "one rank uses far more GPU memory than the others of its job",
        "Uneven sharding, a process that shares the GPU, or tensors that were put on GPU 0 by mistake.",
        "Look at the processes on that GPU, and at code that allocates before the device is set."),
    FindingKind("pcie_degraded", "fewer PCIe lanes or an older generation than GPU and slot support, or replays",
        "A GPU or riser that is not seated well, a BIOS setting, or a failing link.",
        "Reseat the GPU, check the BIOS link settings; replace the riser if replays continue."),
    FindingKind("nvlink_down", "an NVLink is down",
        "A failed link or NVSwitch, or a fabric manager that does not run.",
        "Check nvidia-smi nvlink -s and the fabric manager; reset the GPUs of the node or RMA."),
    FindingKind("nvlink_errors", "error counters of an NVLink increase",
        "A marginal link: connector, cable or chip.",
        "Watch whether the errors continue; reset the GPUs, then have the link replaced."),
    FindingKind("nic_down", "a network port that was up is down",
        "A cable, a transceiver, the switch port, or a driver reset.",
        "Check the cable and the switch port; a job that used the port must be restarted."),
    FindingKind("nic_errors", "error counters of a network port increase",
        "A dirty or damaged cable or transceiver, congestion, or a flapping link.",
        "Clean or replace the cable; check the switch port's counters and the congestion settings."),
    FindingKind("agent_error", "the agent of a node failed to read part of it",
        "A fault of gconsole, or data that it does not expect, such as a malformed environment variable.",
        "See the log for details, and report it; until then ranks or figures of that node may be missing."),
    FindingKind("records_missing", "records of a node are missing",
        "The connection was cut and its agent does not linger, or more was buffered than [agent] buffer_bytes.",
        "Set [agent] linger_s, so that the agent keeps its records while the connection is down."),
    FindingKind("console_late", "the console does not keep up with its nodes",
        "More nodes or ranks than one core can follow, or a machine whose CPUs are busy with something else.",
        "Watch fewer nodes, sample less often (agent.sample_interval_ms), or use a machine with more free CPU time."),
    FindingKind("gateway_lost", "the connection to a gateway or a Slurm step was lost, or it cannot be reached",
        "The login node or the network to it is down, the login failed, or its program, srun or the step was ended.",
        "Log in to it with ssh, or see squeue --steps; with several gateways, another one takes its nodes over, and"
        " lingering agents keep the records of the time between."),
    FindingKind("kernel_fault", "the kernel of a node reported a fault within the last hour",
        "Lack of memory, a server, a disk or a file system that does not respond, failing hardware, or a kernel bug.",
        "Read the message in the finding and the lines around it in dmesg; drain the node if hardware is named."),
    FindingKind("node_rebooted", "a node booted while a job ran",
        "A crash of the kernel, loss of power, failed hardware, or a reboot by a person.",
        "Read why in the finding and in the event log of the node's board (ipmitool sel list); restart the job."),
    FindingKind("launcher_waits", "a launcher has started no rank for a minute",
        "torchrun was not started on every node, or with another endpoint, port, run id or number of nodes; or a "
        "firewall keeps the nodes apart.",
        "Start it on the nodes that lack it (gconsole ps shows the launchers), with the same --nnodes, "
        "--rdzv-endpoint and --rdzv-id; check that every node can connect to the endpoint."),
    FindingKind("service_fault", "a service of a node that jobs need reported a fault within the last hour",
        "slurmd, the kubelet, a container runtime, the NVIDIA fabric manager or another daemon failed or kills.",
        "Read the message in the finding, systemctl status and the log of the service."),
    FindingKind("version_skew", "driver, CUDA, NCCL or kernel versions differ between nodes",
        "A node that missed an update, or a rolling update under way.",
        "Update the nodes that differ, or keep them out of the same job."),
    FindingKind("topology_differs", "a node's devices or links differ from those of its class",
        "A missing GPU or NIC, a degraded link, or another board layout.",
        "Compare the node with its class in the Topology view; check the devices that are missing."),
    FindingKind("rank_dead", "a rank's process has exited",
        "An exception, a signal (often the OOM killer), or a node that restarted.",
        "Read the rank's last output and the kernel log of its node."),
    FindingKind("rank_absent", "a rank never started or was not found",
        "A launcher that did not start it, a node outside the watched set, or a process that gconsole may not read.",
        "Check the launcher's output on that node; add the node to hosts.toml; see run_as if permission is missing."),
    FindingKind("rank_missing", "a rank is alive but has not entered the collective the others wait in",
        "It is still busy or blocked elsewhere: data loading, a file system, a lock, other control flow.",
        "Open the rank's stack in the Hang view and check the named line."),
    FindingKind("rank_stopped", "a rank's process is stopped",
        "SIGSTOP or SIGTSTP, a debugger, or a frozen cgroup.",
        "Continue it with kill -CONT, detach the debugger, or thaw the cgroup."),
    FindingKind("rank_blocked", "a rank's process is blocked in the kernel (D state)",
        "A file system or a driver that does not respond: NFS, Lustre, a lost disk, a hung GPU driver call.",
        "Check the mount or device that the kernel's wait channel and the stack name."),
    FindingKind("collective_mismatch", "ranks run different collectives at the same sequence number",
        "Control flow that differs between ranks: another branch, another order, another shape or data type.",
        "Compare the two stacks that the finding names; all ranks must issue the same collectives in the same order."),
    FindingKind("p2p_cycle", "circular wait of point-to-point operations (deadlock)",
        "Every rank of the circle receives before it sends.",
        "Reorder sends and receives, or post them together with batch_isend_irecv."),
    FindingKind("wait_cycle", "ranks wait for each other (deadlock), at least one through a socket, a pipe or a lock",
        "Each of them waits for data or a lock from the next one, and none can go on.",
        "Follow the connections that the finding names; let one of them send, or enter the collective, first."),
    FindingKind("job_stalled", "no rank of a job makes progress, and no culprit is known",
        "All ranks wait: for a service, a file system, the network, or in different operations.",
        "See where each rank waits in the Hang view; check the service or connection that they have in common."),
    FindingKind("straggler", "a rank is consistently slower than the others",
        "A throttled GPU, a slow disk or network, CPU contention, or uneven work.",
        "Compare its GPU, host and network figures with those of the other ranks."),
    FindingKind("desync", "ranks are at different steps or collectives",
        "A rank that skipped or repeated work, or restarted from another checkpoint.",
        "Check the step counters of the named ranks and their last checkpoint."),
    FindingKind("clock_unsynced", "the time service has no source, or the clock bound exceeds [clock] max_bound_us",
        "chronyd, ntpd or ptp4l does not run or reaches no server; or too few probes got through.",
        "Check the node's time service; allow UDP between the nodes so that probes narrow the bound."),
    FindingKind("clock_offset", "a node's clock differs from that of most nodes by more than [clock] max_offset_ms",
        "Its time service does not run, uses another source, or has not corrected the clock yet.",
        "Check the node's time service and its sources: chronyc tracking, chronyc sources, timedatectl."),
    FindingKind("clock_violated", "collectives ended before all ranks had entered them, according to the clocks",
        "The clock of at least one node is wrong by more than its bound.",
        "Do not rely on skew figures of the named nodes; check their time service."),
    FindingKind("clock_inconsistent", "a node's offsets contradict those of the other nodes",
        "A clock that changed within a window, or timestamps of a faulty NIC.",
        "Check the node's time service and its NIC's timestamping."),
    FindingKind("clock_noncausal", "timestamps of probes are impossible: received before sent",
        "A clock that was set back during a probe, or faulty hardware timestamps.",
        "Check what sets the clock of that node."),
    FindingKind("clock_step", "a node's clock was stepped",
        "A time service or a person set the clock, or the machine was suspended.",
        "Configure the time service to slew instead of step while jobs run."),
    FindingKind("clock_slew", "a node's clock is being slewed fast",
        "The time service corrects a large offset.",
        "Wait until it has settled; check why the offset was large."),
    FindingKind("clock_rate", "clock drift exceeds 100 ppm",
        "A faulty oscillator, a wrong TSC frequency, or a virtual machine's clock source.",
        "Check the kernel's clock source; replace the node's board if it persists."),
    FindingKind("clock_asymmetric", "the path between two nodes is asymmetric",
        "Different routes or queues in the two directions.",
        "The bound already covers it; check routing if a narrow bound is needed."),
    FindingKind("clock_loss", "clock probes of a node are lost",
        "A congested network, or a firewall that limits UDP.",
        "Check the network of that node; allow UDP between the nodes."),
    FindingKind("clock_timens", "the agent runs in a time namespace",
        "A container runtime gave the agent its own monotonic or boot time clock.",
        "Run the agent outside of the time namespace."),
    FindingKind("clock_island", "a node is connected to the reference clock by neither a probe nor a time service",
        "UDP is blocked towards it, and it has no time service.",
        "Allow UDP between the nodes, or start a time service."),
    FindingKind("clock_udp_blocked", "UDP is blocked between two nodes",
        "A firewall between them.",
        "Allow UDP between the nodes; until then probes use the SSH connections, with wider bounds."),
    FindingKind("external", "the job waits for an external dependency",
        "A service, a file or a person outside of the job: a store, a queue, an HTTP server, a prompt.",
        "Check the dependency that the finding names."),
    FindingKind("slow", "the job is slow; the cause is unknown",
        "No rank is consistently late, or too few samples were taken.",
        "Sample longer (--samples), watch a step variable, or probe the clocks."),
    FindingKind("undecided", "the job does not progress; the evidence does not show why",
        "Evidence is missing: ranks that cannot be read, stacks without a known call, no collective data.",
        "See what the verdict lists as missing; enable the Flight Recorder or run the agent with sudo."),
    FindingKind("exception", "a job died: a rank raised an exception or reported a fatal error",
        "An error in the job's own code or input, a full disk, a lack of GPU memory, a failed CUDA or NCCL call.",
        "Open the file and line that the verdict names; the other ranks' errors follow from this one."),
    FindingKind("oom_killed", "a job died: the kernel killed a rank for lack of memory",
        "The memory limit of the job's cgroup or the memory of the node was exhausted.",
        "Lower the memory use (data loader workers, pinned memory, batch size) or raise the limit of the job."),
    FindingKind("signalled", "a job died: a signal ended a rank",
        "A segmentation fault or an abort in native code, or a SIGKILL of which the sender is unknown.",
        "Read the native stack in the rank's output; run with PYTHONFAULTHANDLER=1; keep a core dump."),
    FindingKind("node_lost", "a job died: a node was lost while the job ran",
        "A crash, a restart, a power or network failure of the node, or an eviction of its pod.",
        "Check the node's console and its management controller; exclude the node until it is checked."),
    FindingKind("hardware", "a job died: a device of a node reported a fault shortly before",
        "A GPU, an NVLink, a network adapter, memory or a disk failed.",
        "Drain the node and follow the remedy for the reported fault; restart the job without it."),
    FindingKind("launcher", "a job was ended from outside: by its launcher, the scheduler or a user",
        "A time limit, a cancellation, a preemption, an interrupt (all warnings), or a launcher that died.",
        "Check the scheduler's state and reason of the job, and who ended the launcher."),
    FindingKind("unknown", "a job died; the evidence does not show why",
        "The outputs of ranks are missing, or contain only consequences of a failure elsewhere.",
        "Keep the output of every rank (torchrun --log-dir, srun --output with %t), and diagnose these files."),
)  # fmt: skip

#: Every id with its meaning: what `--fail-on` takes. The kinds of verdict are among them.
IDS: Final[dict[str, str]] = {kind.id: kind.meaning for kind in FINDINGS}


def name_of(id: str) -> str:
    """What people read as the name of a finding: its id, but for `unknown`, which says nothing beside other names."""
    return "crashed" if id == "unknown" else id
