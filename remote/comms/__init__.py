"""What ranks' communication libraries recorded, read from outside where available; nothing has to be prepared.

Format parsers (`safe_pickle`, `flight_recorder`, `nccl_ras`, `nccl_log`) are pure: bytes in, fields
out. `flight_recorder_sources` and `sockets` locate the bytes; `collect` runs a capture.
"""
