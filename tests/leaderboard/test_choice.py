"""Which entry a leaderboard recommends, and how networks compare."""

import numpy as np
import pytest

from vicinal.leaderboard.choice import choose
from vicinal.leaderboard.entry import Entry
from vicinal.leaderboard.leaderboard import boards_of
from vicinal.leaderboard.text import networks_in_words
from vicinal.runs import Record, Run
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit


def made(name: str, values, role: str = "run", backbone: str = "convnet", test=None) -> Run:
    """Return a run with validation scores, and test scores, of each class."""
    classes = tuple(f"v{index}" for index in range(len(values)))
    scores = values if test is None else test
    record = Record(
        key=f"{name}-{backbone}",
        name=name,
        status="done",
        role=role,
        recipe=Recipe(backbone=backbone, dim=8).model_dump(mode="json"),
        data="hash",
        validation={"MAP@R": float(np.mean(values))},
        validation_classes=classes,
        validation_queries=(10,) * len(values),
        validation_per_class=tuple(map(float, values)),
        test={"MAP@R": float(np.mean(scores)), "P@1": 0.5, "P@R": 0.5},
        classes=tuple(f"t{index}" for index in range(len(scores))),
        per_class={"MAP@R": tuple(map(float, scores))},
        queries=(10,) * len(scores),
    )
    return Run(record)


def entry(run: Run) -> Entry:
    return Entry(run.record.name, run.record.network, (run,))


HARD = np.linspace(0.1, 0.9, 12)
JITTER = 0.01 * np.array([1, -1] * 6)


def test_an_untrained_network_is_preferred_where_it_is_level():
    untrained, trained = entry(made("untrained", HARD, "baseline")), entry(made("triplet", HARD + JITTER + 0.001))
    chosen = choose([untrained, trained], [untrained], "MAP@R")
    assert chosen.entry is untrained
    assert chosen.level == (trained, untrained)
    assert chosen.classes == 12


def test_a_trained_model_is_chosen_where_it_is_clearly_better():
    untrained, trained = entry(made("untrained", HARD, "baseline")), entry(made("triplet", HARD + JITTER + 0.05))
    chosen = choose([untrained, trained], [untrained], "MAP@R")
    assert chosen.entry is trained
    assert chosen.level == (trained,)


def test_among_level_methods_the_record_over_datasets_decides():
    triplet = entry(made("triplet+semi_hard", HARD + JITTER + 0.001))
    usual = entry(made("multi_similarity+valid_triplets", HARD))
    own = entry(made("my_loss", HARD + JITTER))
    assert choose([triplet, usual, own], (), "MAP@R").entry is usual
    assert choose([triplet, own], (), "MAP@R").entry is triplet


def test_test_scores_do_not_matter():
    better = entry(made("a", HARD + 0.1, test=HARD - 0.1))
    other = entry(made("b", HARD, test=HARD + 0.1))
    assert choose([better, other], (), "MAP@R").entry is better


def test_networks_are_compared_by_their_best_rows():
    runs = [
        made("triplet", HARD + 0.01),
        made("contrastive", HARD + 0.012),
        made("untrained", HARD, "baseline"),
        made("untrained", HARD + 0.2 + JITTER, "baseline", backbone="resnet18"),
    ]
    (board,) = boards_of(runs, [])
    first, last = networks_in_words(board)
    assert first.startswith("untrained on resnet18 is significantly better than contrastive on convnet: MAP@R +0.18")
    assert last == "The network matters more than the loss here."
    assert board.best.record.name == "untrained"
    assert board.gain.baseline.network[0] == "resnet18"
