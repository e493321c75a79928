"""Recording a session: recorder, selection, resume and repair after a crash."""
