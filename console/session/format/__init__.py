"""The session format on disk: segments, index, Parquet parts, folder layout, redaction."""
