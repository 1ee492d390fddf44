"""Chance-constrained proxies by recipe: presets, frozen features and full networks, one process and two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from vicinal.build import build_criterion
from vicinal.data import Split, digits, split
from vicinal.errors import InputError
from vicinal.fitting import fit
from vicinal.recipe import Recipe
from vicinal.references import Batch, Memory, Proxies
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.settings import CCP, CCP_PRESETS

pytestmark = pytest.mark.recipe

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "vicinal" / "recipes" / "ccp"
SMALL: dict[str, Any] = {
    "loss": "contrastive_c2",
    "normalisation": "ball",
    "backbone_options": {"widths": [4, 8], "size": 16},
    "dim": 4,
    "classes_per_batch": 3,
    "steps": 24,
    "evaluate_every": 2,
    "learning_rate": 3e-3,
    "progress": False,
}
QUICK = {"preset": "code", "patience": 1, "proxies_per_class": 2, "pool": 3}


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits(), "fixed-validation", validation=0.4)


def test_presets_are_the_paper_and_its_code() -> None:
    assert CCP() == CCP.model_validate("code") == Recipe.of({"ccp": "code"}).ccp
    paper = Recipe.of({"ccp": {"preset": "paper", "pool": 7}}).ccp
    assert paper == CCP(pair_weight=0.0, restart="best", monitor="fresh", pool=7)
    assert set(CCP_PRESETS) == {"code", "paper"}
    assert Recipe.of({"ccp": "code"}).changed(ccp="none").ccp is None


def test_a_pool_is_never_smaller_than_the_proxies() -> None:
    assert [CCP(pool=pool, proxies_per_class=4).pool_size for pool in (1, 3, 4, 12)] == [4, 12, 4, 12]


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"ccp: Unknown preset of CCP 'papre'; did you mean 'paper'\?"):
        Recipe.of({"ccp": "papre"})
    with pytest.raises(InputError, match=r"ccp.pools: Extra inputs are not permitted") as caught:
        Recipe.of({"ccp": {"pools": 3, "restart": "begin"}})
    assert "ccp.restart: Input should be 'best' or 'continue'; got 'begin'" in str(caught.value)


def test_a_recipe_with_ccp_comes_back_from_toml(tmp_path: Path) -> None:
    recipe = Recipe.of({"ccp": {"preset": "paper", "proximal_weight": 1e-5}, "loss": "triplet"})
    (tmp_path / "recipe.toml").write_text(recipe.toml())
    assert Recipe.read(tmp_path / "recipe.toml") == recipe
    assert "[ccp]" not in Recipe().toml()


def test_the_criterion_has_proxies_pairs_and_memory(halves: Split) -> None:
    recipe = Recipe.of({"loss": "triplet", "ccp": {"proxies_per_class": 3, "pair_weight": 0.2}, "memory": 10})
    criterion = build_criterion(recipe, halves.train, 4)
    proxies, pairs, memory = criterion.references
    assert (proxies.per_class, proxies.classes, proxies.learning_rate_multiplier) == (3, 3, 1.0)
    assert isinstance(pairs, Batch)
    assert isinstance(memory, Memory)
    assert criterion.term_weights == (1.0, 0.2, 1.0)
    only = build_criterion(Recipe.of({"loss": "triplet", "ccp": "paper"}), halves.train, 4)
    assert [type(module) for module in only.references] == [Proxies]
    # A loss that makes no sense on pairs runs on the proxies alone.
    centres = build_criterion(Recipe.of({"loss": "soft_triple", "ccp": "code"}), halves.train, 4)
    assert [type(module) for module in centres.references] == [Proxies]


@pytest.mark.parametrize("freeze", [False, True], ids=["network", "frozen"])
@pytest.mark.parametrize("images", ["augmented", "plain"])
def test_fit_alternates_and_records(freeze: bool, images: str, halves: Split, tmp_path: Path) -> None:
    options = {**SMALL, "freeze": freeze, "copies": 2, "cache": tmp_path / "cache", "learning_rate": 0.1}
    fit(halves, folder=tmp_path / "run", ccp={**QUICK, "pool_images": images}, **options)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    instances = [line for line in lines if "instance" in line]
    assert len(record["instances"]) == len(instances) >= 1
    assert [line["instance"] for line in instances] == list(range(1, len(instances) + 1))
    shown = {"MAP@R", "covering radius", "inter-class distance", "proxy spread", "next proxy radius"}
    assert shown < set(instances[0])
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["hooks"][0]
    assert all(name.startswith(("head.", "linear.")) for name in state["_anchor"]) == freeze


def test_a_killed_run_ends_as_if_it_had_not_been(
    halves: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SMALL, "ccp": QUICK, "checkpoint_every": 1}
    fit(halves, folder=tmp_path / "whole", **options)
    replace, writes = os.replace, iter(range(1, 1000))

    def stop(source: Any, target: Any) -> None:
        if Path(target).name == "last.ckpt" and next(writes) == 15:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("vicinal.atomic.os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(halves, folder=tmp_path / "run", **options)
    assert load_checkpoint(tmp_path / "run" / "last.ckpt")["progress"]["step"] == 14
    fit(halves, folder=tmp_path / "run", resume=True, **options)
    one, other = (load_checkpoint(tmp_path / run / "last.ckpt") for run in ("whole", "run"))
    for part in ("model", "criterion"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    assert one["hooks"][0]["history"] == other["hooks"][0]["history"]
    assert all(
        torch.equal(one["hooks"][0]["_anchor"][name], other["hooks"][0]["_anchor"][name])
        for name in one["hooks"][0]["_anchor"]
    )


def test_without_validation_classes_nothing_can_converge(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train with validation classes and evaluate_every above 0"):
        fit(split(digits(), "default"), ccp="code", **SMALL)


FLAGS = [
    *("--loss", "contrastive_c2", "--ccp", "paper", "--dim", "4", "--steps", "16", "--learning-rate", "0.01"),
    *("-o", "normalisation=ball", "-o", "classes_per_batch=4", "-o", "optimiser=sgd", "-o", "freeze_batch_norm=true"),
    *("-o", 'backbone_options={"widths": [4, 8], "size": 16}', "-o", "evaluate_every=2", "-o", "accelerator=cpu"),
]
CHILD = "import torch; torch.set_num_threads(1); from vicinal.cli.main import main; main()"


def test_two_processes_have_the_proxies_of_one(tmp_path: Path) -> None:
    from vicinal.cli.main import app

    (tmp_path / "child.py").write_text(CHILD)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--"]
    done = subprocess.run(
        [*launch, str(tmp_path / "child.py"), "train", "digits", "--run", str(tmp_path / "two"), *FLAGS],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    alone = CliRunner().invoke(app, ["train", "digits", "--run", str(tmp_path / "one"), *FLAGS])
    assert alone.exit_code == 0, alone.output
    records = [json.loads((tmp_path / run / "record.json").read_text())["instances"] for run in ("one", "two")]
    assert len(records[0]) == len(records[1]) >= 1
    for one, two in zip(*records, strict=True):
        assert two == pytest.approx(one, abs=1e-3, nan_ok=True)  # one class has no other to be far from
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-4)
    one, two = (load_checkpoint(tmp_path / run / "last.ckpt")["criterion"] for run in ("one", "two"))
    torch.testing.assert_close(two["references.0.vectors"], one["references.0.vectors"], rtol=0, atol=1e-3)
