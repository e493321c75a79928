"""Two ranks of a user who names a path of his, or one that he may not read, wherever a rank can, below HOSTILE_HOME.

Rank 0 lives until it is killed; rank 1 ends with an error once the file crash exists there. Prints READY as a rank of
the rig does.
"""

import ctypes
import mmap
import os
import pty
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HOME = os.environ["HOSTILE_HOME"]
RANK = int(os.environ["RANK"])
RAS_PORT = 28_100
PR_SET_NAME = 15
#: What a rank of torchrun and its libraries may have in their environment.
VARIABLES = {
    "TORCHELASTIC_RUN_ID": "named", "TORCHELASTIC_RESTART_COUNT": "1", "GROUP_RANK": "0",
    "TORCHELASTIC_ERROR_FILE": f"{HOME}/elastic/run_aaaaaaaa/attempt_1/{RANK}/error.json",
    "TORCH_FR_DUMP_TEMP_FILE": f"{HOME}/flight_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{HOME}/flight_old_",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{HOME}/dump_", "NCCL_DEBUG_FILE": f"{HOME}/nccl.%p.log",
    "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": f"{HOME}/inspector",
    "NCCL_RAS_ADDR": f"127.0.0.1:{RAS_PORT}", "HOME": HOME, "XDG_CACHE_HOME": f"{HOME}/cache", "TMPDIR": HOME,
    "PYTHONPATH": f"{HOME}/modules", "VIRTUAL_ENV": f"{HOME}/venv", "PATH": f"{HOME}/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": f"{HOME}/lib", "SLURM_CONF": f"{HOME}/slurm.conf", "SLURM_JOB_ID": "77",
    "SLURM_SUBMIT_DIR": HOME, "TORCH_WORKER_SERVER_SOCKET": f"{HOME}/server",
}  # fmt: skip
kept = []


def main():
    if os.environ.get("NCCL_DEBUG_FILE") is None:  # once more, with these variables from the start
        os.chdir(f"{HOME}/work")
        os.execve(sys.executable, [f"{HOME}/venv/bin/python3", *sys.argv], {**os.environ, **VARIABLES})
    print(f"READY rank={RANK} pid={os.getpid()}", flush=True)
    write_files()
    map_files()
    listen()
    start_unsupported_python()
    redirect()
    run_from(f"{HOME}/train.py" if RANK == 0 else "/root/named-secret", "loop")
    for name in ("/dev/pts/ptmx", "/dev/tty", f"{HOME}/fifo", f"{HOME}/link-to-secret.py"):
        threading.Thread(target=run_from, args=(name, "sleep"), daemon=True).start()
    while RANK == 0 or not Path(HOME, "crash").exists():
        NAMESPACE["loop"](0.2)
    raise RuntimeError(f"named by rank {RANK}")


def write_files():
    """Files of this user at the paths that the variables name, and links to what he may not read."""
    for attempt in (0, 1):
        for rank in (0, 1):
            folder = f"{HOME}/elastic/run_aaaaaaaa/attempt_{attempt}/{rank}"
            for name in ("stderr.log", "stdout.log"):
                write(f"{folder}/{name}", "RuntimeError: named\n")
    write("/tmp/torchelastic_named/run_bbbbbbbb/attempt_0/0/error.json", "{}")
    write("/tmp/torchelastic_named/run_bbbbbbbb/attempt_0/0/stderr.log", "ValueError: named\n")
    for name in (f"flight_{RANK}", f"nccl.{os.getpid()}.log", f"inspector/x-pid{os.getpid()}.log", "core"):
        write(f"{HOME}/{name}", "{}\n")
    if RANK == 0:
        os.mkfifo(f"{HOME}/fifo")
        os.mkfifo(f"{HOME}/dump_0.pipe")
        kept.append(os.open(f"{HOME}/dump_0.pipe", os.O_RDWR))
        Path(HOME, "link-to-secret.py").symlink_to("/root/named-secret")
        write(f"{HOME}/train.py", "loop()\n" * 3)


def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def map_files():
    """Libraries by the names that the agent looks for, and one below a folder of packages."""
    for place in ("lib/libcuda.so.1", "site/nvidia/nccl/lib/libnccl.so.2", "lib/libpython3.15.so.1.0"):
        path = f"{HOME}/{place}"
        if RANK == 0 and not Path(path).exists():
            write(f"{path}.draft", "\0" * mmap.PAGESIZE)
            Path(f"{path}.draft").rename(path)  # the other rank maps it only when it is whole
        while not Path(path).exists():
            time.sleep(0.01)
        with Path(path).open("rb") as file:
            kept.append(mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ))


def listen():
    """A worker server, RAS, and abstract sockets whose names add lines with the inode of the first to /proc."""
    if RANK != 0:
        return
    server, ras = socket.socket(socket.AF_UNIX), socket.socket()
    server.bind(f"{HOME}/server")
    server.listen()
    ras.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ras.bind(("127.0.0.1", RAS_PORT))
    ras.listen()
    inode = os.fstat(server.fileno()).st_ino
    for target in ("@named-trap", f"{HOME}/trap"):
        forged, trap = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        trap.bind(target.replace("@", "\0"))
        trap.listen()
        forged.bind(f"\0a\n0000000000000000: 00000002 00000000 00010000 0001 01 {inode} {target}")
        forged.listen()
        kept.extend([forged, trap])
    threading.Thread(target=serve, args=(server, b"pt_workerserver"), daemon=True).start()
    threading.Thread(target=serve, args=(ras, b"ras"), daemon=True).start()


def serve(listener, name):
    ctypes.CDLL(None).prctl(PR_SET_NAME, name, 0, 0, 0)
    while True:
        link, _ = listener.accept()
        request = link.recv(4096)
        body = b'["fr_trace_json"]' if b"GET" in request else b'{"entries": [], "pg_status": {}}'
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        link.close()


def start_unsupported_python():
    """A child that py-spy does not support, beside a link that is named pystack; its program is replaced afterwards."""
    folder = f"{HOME}/new{RANK}"
    Path(folder).mkdir()
    shutil.copy("/bin/sleep", f"{folder}/python3.15")
    Path(folder, "pystack").symlink_to("/usr/bin/env")
    kept.append(subprocess.Popen([f"{folder}/python3.15", "600"]))
    Path(folder, "python3.15").unlink()
    write(f"{folder}/python3.15", "#!/bin/sh\n")


def redirect():
    """Standard output to a file, standard error to a FIFO or a terminal."""
    os.dup2(os.open(f"{HOME}/stdout{RANK}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
    if RANK == 0:
        os.dup2(os.open(f"{HOME}/fifo", os.O_RDWR), 2)
    else:
        controller, terminal = pty.openpty()
        os.dup2(terminal, 2)
        kept.append(controller)


NAMESPACE = {"time": time}


def run_from(file, name):
    """Define a function whose code claims to come from a file; one that sleeps for good is run."""
    exec(compile(f"def {name}(seconds):\n    time.sleep(seconds)", file, "exec"), NAMESPACE)
    if name == "sleep":
        NAMESPACE[name](600)


if __name__ == "__main__":
    main()
