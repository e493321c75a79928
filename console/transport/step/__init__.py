"""All nodes of a Slurm job over one srun: a step with one task on each node."""
