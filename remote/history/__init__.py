"""What a node recorded before the agent started: journal, boots, core dumps, the state of its Slurm node and job."""
