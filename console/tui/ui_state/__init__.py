"""UI state that persists between starts: one small file per cluster."""
