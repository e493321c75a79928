"""What ranks' communication libraries recorded, read from outside when it happens to be there; nothing is required.

Readers of formats (`pickled`, `trace`, `ras`, `nccllog`, `inspector`) are pure: bytes in, plain fields out. The others
know where such bytes are found on a node (`workers`, `dumps`, `rasport`, `tails`), and `reading` does it for a capture.
"""
