"""Faults in the kernel log: the messages that matter to a training job, and the sampler's reader of the ring buffer."""
