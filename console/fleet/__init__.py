"""Everything between the console and its nodes: transports, host keys, the bundle, links, reconnects."""
