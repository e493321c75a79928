"""What is asked of NVML, one file a subject; `samplers/gpu.py` puts them together.

Every call may fail on some GPU with some driver, and each is therefore made through `asking.Asker`, which knows what a
failure means: this figure is not to be had here (and why), or the whole GPU is gone.
"""
