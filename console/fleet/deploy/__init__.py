"""Deployment: payload, start frame, binaries and wheels sent to a node to run the agent."""
