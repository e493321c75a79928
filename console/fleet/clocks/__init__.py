"""Clock probes between nodes: the console plans pairs and times, the nodes probe and send the results as records."""
