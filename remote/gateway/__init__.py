"""The gateway: reaches the nodes of a site from a login node, over one connection of the console."""
