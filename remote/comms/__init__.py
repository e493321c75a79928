"""What ranks' communication libraries recorded, read from outside where available; nothing has to be prepared.

Format parsers (`safe_pickle`, `flight_recorder`, `nccl_ras`, `nccl_log`, `nccl_inspector`) are pure: bytes in, fields
out. `worker_server`, `flight_recorder_files`, `nccl_ras` and `log_tail` locate the bytes; `collect` runs a capture.
"""
