"""Evaluates an expression in the process of the selected rank, after a confirmation that names it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...core.evaluation import WAIT_S, Evaluated, Evaluator, RankProcess
from ...text.cells import clean
from ...text.secrets import without_secrets
from ..dialogs.prompts import Prompt
from ..dialogs.task import TaskDialog
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp


class EvaluationController(Controller):
    """Prompts for expressions, and shows their values. `evaluator` is None in a replay and in a browser."""

    def __init__(self, app: ConsoleApp, evaluator: Evaluator | None, *, live: bool) -> None:
        self._app, self._evaluator, self._live = app, evaluator, live
        self._typed = ""  # in the prompt, offered again

    @property
    def is_allowed(self) -> bool:
        """Whether the node of the selected rank allows it."""
        node = self._app.view.selected_values.get("node")
        return self._evaluator is not None and isinstance(node, str) and self._evaluator.allows(node)

    def _selected(self) -> RankProcess | None:
        """The live process of the selected rank."""
        values = self._app.view.selected_values
        for job in self._app.frame.jobs.jobs:
            for row in job.rows:
                rank = row.rank
                is_selected = rank is not None and (rank.node, rank.pid) == (values.get("node"), values.get("pid"))
                if rank is not None and is_selected and rank.status == "present" and row.number is not None:
                    return RankProcess(rank.node, rank.job, row.number, rank.pid, rank.start_ticks)
        return None

    def action_evaluate(self) -> None:
        """Prompt for an expression, and evaluate it after a confirmation."""
        rank, evaluator = self._selected(), self._evaluator
        if not self._live:
            self._warn("not available in replay: this is a recording")
        elif evaluator is None:
            self._warn("not in a browser; use gconsole eval in a terminal")
        elif rank is None:
            self._warn("select a rank with a live process")
        elif not evaluator.allows(rank.node):
            self._warn(f"eval is off on {rank.node}; set [agent] allow_eval = true for it in hosts.toml")
        else:
            text = f"A Python expression, for the main thread of {clean(rank.description)}."
            hint = "model.training"
            prompt = Prompt(f"Evaluate in rank {rank.rank}", text, enter="continue", hint=hint, typed=self._typed)
            self._app.push_screen(prompt, partial(self._answered, evaluator, rank))

    def _answered(self, evaluator: Evaluator, rank: RankProcess, typed: str | None) -> None:
        if typed is not None and typed.strip():
            self._typed = typed
            work = partial(_evaluate, evaluator, rank, typed.strip())
            self._app.push_screen(TaskDialog(f"Evaluate in rank {rank.rank}", [], work))

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning", timeout=8, markup=False)


async def _evaluate(evaluator: Evaluator, rank: RankProcess, expression: str, dialog: TaskDialog) -> Sequence[str]:
    dialog.show_lines([
        expression, "", f"in {rank.description}.",
        "Its main thread pauses for it, and an expression may have effects. The use is recorded.",
    ])  # fmt: skip
    await dialog.confirm("evaluate")
    dialog.if_cancelled = "no longer waited for; the expression may have been evaluated"
    dialog.show_lines([expression, "", f"waiting up to {WAIT_S:g} s for the main thread …"])
    answer = await evaluator.evaluate(rank, expression, WAIT_S)
    if isinstance(answer, Evaluated):
        value = map(without_secrets, answer.value_text.splitlines())
        return [expression, "", *value, "", rank.description + answer.circumstances]
    return [expression, "", f"✖ not evaluated: {answer.text}", *([f"  try: {answer.try_}"] if answer.try_ else [])]
