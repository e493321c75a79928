"""What is kept of a run and what can be made of it; nothing here draws on a screen."""
