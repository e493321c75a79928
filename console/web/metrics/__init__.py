"""What Prometheus reads: `families` names every figure, `samples` takes them from the store, `exposition` writes them.

Names and units are those of the ecosystem: base units (bytes, seconds, hertz, ratios from 0 to 1), `_total` for what
only grows. What is no longer heard of is not written any more, so that its series end.
"""
