"""Benches: each measures one promise of the design on this machine, beside a peer or a bound, and asserts nothing."""
