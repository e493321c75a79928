"""Exports: sessions, slices of them and captures in the formats of other tools."""
