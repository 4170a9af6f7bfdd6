"""Names for readers: the paper's, and one's own where the paper has none."""

from __future__ import annotations

from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.paper_scores import read_paper_scores
from metaxlm.tasks.registry import TASKS


def test_variants_have_the_names_of_the_papers_tables() -> None:
    printed = {score.model for score in read_paper_scores()}
    assert {display_name(name) for name in ("xlm", "metaxlm", "metaxlm+dict")} <= printed
    assert display_name("my-idea") == "my-idea"


def test_tasks_have_their_titles() -> None:
    assert {task: title_task(task) for task in TASKS} == {t: TASKS[t].title for t in TASKS}
    assert [title_task(task) for task in ("tatoeba", "alignment", "own")] == [
        "Tatoeba", "word alignment", "own",
    ]  # fmt: skip
