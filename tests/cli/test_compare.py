"""`vicinal compare`: what its flags ask of a comparison."""

from pathlib import Path

from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.results import Journal

SMALL = ["--budget", "4", "-o", "evaluate_every=2", "-o", "classes_per_batch=2", "-o", "dim=8", "--jobs", "1"]
TINY = ["-o", 'backbone_options={"widths": [8], "size": 8}', "--no-progress", "--no-models"]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_ccp_runs_each_loss_with_and_without(tmp_path: Path) -> None:
    run(
        "digits",
        "--losses",
        "contrastive_c2,triplet+ccp",
        "--ccp",
        "--out",
        tmp_path,
        *SMALL,
        *TINY,
        "-o",
        "validation=0.6",
    )
    found = {record.name: record.recipe["ccp"] for record in Journal(tmp_path).records() if record.role == "run"}
    assert set(found) == {"contrastive_c2", "contrastive_c2 + ccp", "triplet + ccp"}
    assert found["contrastive_c2"] is None
    assert found["contrastive_c2 + ccp"]["monitor"] == "stale"  # as the code has it
    page = (tmp_path / "report.html").read_text()
    assert "contrastive c2 + ccp" in page


def test_a_single_backbone_may_be_called_one(tmp_path: Path) -> None:
    run("digits", "--losses", "triplet", "--backbone", "convnet", "--no-report", "--out", tmp_path, *SMALL, *TINY)
    assert {record.recipe["backbone"] for record in Journal(tmp_path).records()} == {"convnet"}
