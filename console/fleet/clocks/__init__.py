"""Who probes whose clock, and when: the console plans, the nodes do it, and what they find comes as records."""
