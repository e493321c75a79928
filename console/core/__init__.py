"""The record bus, the control protocols, and the store of current and recent records."""
