"""Hang diagnosis of one job from records alone: `diagnose_job` returns a verdict, or what evidence is missing.

`verdict` has the input and the output. Between them: `rank_state` (where each rank is and since when), `job_view`
(which ranks wait), `progress` (whether the job makes progress), `rules` (the culprit), `diagnosis` (cross-check with
collective records), `wording` (texts). A wrong name costs more than no name: each rule states when it refuses.
"""
