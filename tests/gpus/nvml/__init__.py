"""A fake NVML: `nvml.c` answers the ABI from a scenario file, so that the agent's real ctypes binding is tested."""
