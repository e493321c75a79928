"""The text of /metrics: `exposition` has the metric families and the format, `samples` the values from the store.

Names and units follow the Prometheus conventions: base units (bytes, seconds, hertz, ratios from 0 to 1), `_total` for
counters. Entities that no longer report are left out, so that their series end.
"""
