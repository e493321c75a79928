"""Node topology: devices, links and bandwidths, routes, and classes of identical nodes."""
