"""A fake libcuda in C: the ABI that the GPU timer reader uses. There is no GPU, and the PTX is not executed."""
