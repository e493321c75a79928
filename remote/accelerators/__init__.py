"""GPUs and accelerators of AMD, Intel, Habana and Google: their files in sysfs, their users, their vendors' tools."""
