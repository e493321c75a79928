"""NVML for tests: `nvml.c` answers its ABI from a scenario file, so that the agent's real ctypes binding is tested."""
