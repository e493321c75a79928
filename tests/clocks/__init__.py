"""Clock tests: synthetic timestamps with known true offsets (no sockets), evaluated by the product."""
