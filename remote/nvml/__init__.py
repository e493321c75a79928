"""NVML access, one file a subject; `samplers/gpu.py` combines them.

Every call may fail on some GPU with some driver, so each goes through `call.NvmlDevice`, which distinguishes a field
that is not supported (and why) from a GPU that is lost.
"""
