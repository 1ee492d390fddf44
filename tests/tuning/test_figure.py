"""The figure of a search shows every trial and every setting."""

from __future__ import annotations

from pathlib import Path

from vicinal.runs.recipe import Recipe
from vicinal.tuning import Attempt, Choice, Range, Tuned
from vicinal.tuning.tuned import plot_search


def test_every_setting_has_a_panel(tmp_path: Path) -> None:
    values = {"loss_options.margin": 0.2, "loss_options.which": "hard", "learning_rate": 1e-3}
    trials = (
        Attempt(0, "complete", values, 0.5, {4: 0.5}, 1.0),
        Attempt(1, "pruned", {**values, "learning_rate": 1e-5}, 0.2, {2: 0.2}, 0.5),
        Attempt(2, "failed", values, None, {}, 0.1, "NotFinite: The loss is nan."),
        Attempt(3, "complete", {**values, "loss_options.which": "all"}, 0.7, {4: 0.7}, 1.0),
    )
    space = {
        "loss_options.margin": Range(0.0, 1.0),
        "loss_options.which": Choice(("all", "hard")),
        "learning_rate": Range(1e-5, 1e-1, log=True),
    }
    tuned = Tuned(Recipe(), 0.7, "MAP@R", trials, trials[3], space, "tpe", {"learning_rate": 0.6}, "study")
    figure = plot_search(tuned)
    history, margin, which, rate, *empty = figure.axes
    assert [panel.get_xlabel() for panel in (history, margin, which, rate)] == [
        "trial",
        "margin",
        "which",
        "learning_rate (60 %)",
    ]
    assert not any(panel.axison for panel in empty)
    assert rate.get_xscale() == "log"
    assert [label.get_text() for label in which.get_xticklabels()] == ["all", "hard"]
    assert history.lines[0].get_ydata().tolist() == [0.5, 0.7]  # the best so far
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(legend) == ["as given", "best", "complete", "pruned"]
    figure.savefig(tmp_path / "search.png")
    assert (tmp_path / "search.png").stat().st_size > 5000
