"""A stand-in for libcuda: the ABI that the reader of GPU timers uses, in C. No GPU is in it, and none runs its PTX."""
