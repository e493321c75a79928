"""Every command the agent may run, in one list; nothing else is ever started."""

import subprocess

#: name → the arguments; `{blob}` is replaced by the path of a binary whose content was checked.
COMMANDS = {
    "sudo_probe": ["sudo", "-n", "true"],
    "py_spy_version": ["{blob}", "--version"],
}


def run(name, timeout_s, blob=None):
    """(exit status, what it wrote) of a listed command; the status is None where it could not be run in time."""
    argv = [blob if word == "{blob}" else word for word in COMMANDS[name]]
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=True
        )
    except OSError as error:
        return None, str(error)
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, "no answer within %g s" % timeout_s
    return process.returncode, out.decode("utf-8", "backslashreplace").strip()
