from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import InputError, UnknownName

run = CliRunner().invoke


def test_it_draws_a_panel_per_loss_and_names_the_similarities(tmp_path: Path) -> None:
    out = tmp_path / "weights.png"
    result = run(app, ["weights", "contrastive", "triplet", "--out", str(out), "-o", "margin=0.2"])
    assert isinstance(result.exception, UnknownName)  # contrastive has no margin
    result = run(app, ["weights", "contrastive", "triplet", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "contrastive depends on similarities: own yes, negative no, positive no" in result.stdout
    assert "triplet depends on similarities: own no, negative no, positive yes" in result.stdout
    with Image.open(out) as figure:
        assert figure.width > figure.height  # two panels side by side


def test_curves_as_json(tmp_path: Path) -> None:
    out = tmp_path / "weights.png"
    found = json.loads(run(app, ["weights", "contrastive", "arcface", "--out", str(out), "--json"]).stdout)
    assert found["contrastive"]["depends on"] == {"own": True, "negative": False, "positive": False}
    curve = found["contrastive"]
    assert len(curve["similarity"]) == len(curve["positive"]) == len(curve["negative"])
    assert (curve["negative"][0], curve["negative"][-1]) == (0.0, 1.0)
    assert out.is_file()


def test_mining_is_part_of_the_weights(tmp_path: Path) -> None:
    out = str(tmp_path / "w.svg")
    result = run(app, ["weights", "raw", "--mining", "valid_triplets", "--out", out])
    assert "own yes, negative yes, positive yes" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["weights", "circel"], "did you mean 'circle'"),
        (["weights", "circle", "--mining", "hardest"], "did you mean 'hard'"),
        (["weights", "circle", "--mining", "random"], "not a curve"),
        (["weights", "circle", "-o", "margin"], "name=value"),
        (["weights", "circle", "-o", "margn=0.1"], "did you mean 'margin'"),
        (["weights", "circle", "-o", "margin=-1"], "margin must be at least 0"),
    ],
)
def test_wrong_arguments_are_explained(arguments: list[str], message: str) -> None:
    result = run(app, arguments)
    assert isinstance(result.exception, (InputError, UnknownName))
    assert message in str(result.exception)
