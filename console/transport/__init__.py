"""One command channel to one node: asyncssh, OpenSSH, local, Slurm and Kubernetes exec."""
