"""What the console sends to a node to run the agent: payload, start frame, binaries, wheels."""
