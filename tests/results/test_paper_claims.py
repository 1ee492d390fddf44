"""Fair comparisons of papers, and what is left of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import DataError, InputError
from vicinal.results import published
from vicinal.results.literature import thesis_tables
from vicinal.results.paper_claims import (
    Result,
    as_results,
    audit_claims,
    read_results,
    thesis_cases,
    with_and_without,
)
from vicinal.results.published_parts import validated_parts

pytestmark = pytest.mark.unit


def test_margin_against_lifted_structure_as_the_thesis_has_it() -> None:
    claims = {(claim.proposed.paper, claim.other.method): claim for claim in audit_claims(thesis_cases())}
    lifted, n_pair = (claims["Wu et al. 2017", name] for name in ("lifted_structure", "n_pair"))
    assert (lifted.fair, lifted.differs) == (False, ("network", "dimensions"))
    assert lifted.same_setting == pytest.approx(0.6300 - 0.6016)  # Table 6b
    assert n_pair.same_setting == pytest.approx(0.6300 - 0.5891)
    assert lifted.explained == pytest.approx(1 - 0.0284 / 0.2)
    assert lifted.exact
    assert "86 % of the claimed difference goes away" in str(lifted)


def test_all_cases_of_the_thesis_are_found_unfair() -> None:
    claims = audit_claims(thesis_cases())
    assert len({claim.proposed.paper for claim in claims}) == 6  # eight cases: two papers have both faults
    by_network = {claim.proposed.paper for claim in claims if "network" in claim.differs}
    by_dimension = {claim.proposed.paper for claim in claims if "dimensions" in claim.differs}
    assert len(by_network) >= 5
    assert {"Wu et al. 2017", "Wang et al. 2019 (ranked list)", "Yu and Tao 2019"} <= by_dimension
    assert all(claim.fair is False for claim in claims)


def test_equal_settings_are_fair_and_missing_ones_cannot_be_told() -> None:
    whole = {"backbone": "resnet50", "dim": 64, "pooling": "max", "image_size": 224}
    results = [
        Result("p", "cub", "R@1", "triplet", value=0.5, **whole),
        Result("p", "cub", "R@1", "margin", value=0.6, **whole),
        Result("p", "cub", "R@1", "n_pair", value=0.4, **{**whole, "pooling": None}),
        Result("p", "cub", "R@1", "own", value=0.4, **{**whole, "image_size": 448}),
    ]
    claims = {claim.other.method: claim for claim in audit_claims(results)}  # the best is what is claimed for
    assert {name: claim.fair for name, claim in claims.items()} == {"triplet": True, "n_pair": None, "own": False}
    assert claims["own"].differs == ("image size",)
    assert claims["own"].same_setting is None
    assert claims["triplet"].explained is None  # nothing is to be explained
    assert claims["triplet"].claimed == pytest.approx(0.1)


def test_the_mean_over_all_settings_where_the_own_one_was_not_measured() -> None:
    results = [
        Result("p", "cub", "R@1", "margin", "vgg", 64, value=0.7, proposed=True),
        Result("p", "cub", "R@1", "triplet", "googlenet", 64, value=0.4),
    ]
    (claim,) = audit_claims(results)
    rows = {
        name: {
            (row.source): row.value
            for row in published("cub", method=name, score="R@1", protocol="default")
            if row.source.startswith("Psomas") and not row.source.endswith("17")
        }
        for name in ("margin", "triplet")
    }
    shared = rows["margin"].keys() & rows["triplet"].keys()
    assert len(claim.settings) == len(shared) == 12
    assert claim.same_setting == pytest.approx(sum(rows["margin"][s] - rows["triplet"][s] for s in shared) / 12)
    assert not claim.exact


def test_every_published_number_can_be_asked() -> None:
    parts = validated_parts(published())
    of_parts = sum(len(table.validation) + len(table.test) for table in parts)
    assert len(as_results(published())) + of_parts == len(published()) == 1755
    for dataset in ("cub", "cars196", "sop", "inshop"):
        rows = published(dataset)
        claims = audit_claims(as_results(rows))
        assert claims
        asked = {(claim.other.method, claim.other.score) for claim in claims}
        asked |= {(claim.proposed.method, claim.proposed.score) for claim in claims}
        assert asked == {(row.method, row.score) for row in rows if not row.part}


def test_impossible_numbers_are_marked_and_count_for_nothing() -> None:
    claims = audit_claims(as_results(published("sop", score="R@1000")))
    marked = [claim for claim in claims if claim.other.note]
    assert {claim.other.dim for claim in marked} == {128, 1024}
    assert {claim.claimed for claim in marked} == {None}
    assert all("(impossible: recall falls as k grows)" in str(claim) for claim in marked)
    assert not any(claim.proposed.note for claim in claims)
    assert not any(name.endswith(("Table 10b", "Table 10d")) for claim in marked for name, _ in claim.settings)
    tables = thesis_tables("sop", "R@1000")
    assert "arcface" not in tables["bn_inception 128"].keys() | tables["bn_inception 1024"].keys()
    assert "arcface" in tables["bn_inception 64"]


def test_of_steps_fewer_are_better_and_differences_are_shares() -> None:
    claims = audit_claims(as_results(published("sop", score="steps")))
    assert {claim.proposed.method for claim in claims} == {"soft_triple"}  # 48,000
    anchor = next(claim for claim in claims if claim.other.method == "proxy_anchor")
    assert anchor.claimed == pytest.approx(48 / 54 - 1)
    assert "soft_triple has 48,000 steps" in str(anchor)
    assert "claimed: -11 % steps" in str(anchor)
    assert "points" not in str(anchor)


def test_with_something_and_without_it_in_one_table() -> None:
    steps = with_and_without(published(score="steps"), "ccp")
    told = {(claim.proposed.dataset, claim.other.method): f"{claim.claimed:+.0%}" for claim in steps}
    assert told["inshop", "triplet"] == "+58%"
    assert sorted(told.values()) == ["+11%", "+11%", "+33%", "+34%", "+36%", "+58%"]
    cells = with_and_without(published(score="MAP@R", source="Gürbüz"), "ccp")
    assert len(cells) == 32  # four losses, four datasets, single and joined
    assert all(claim.claimed is not None and claim.claimed > 0 for claim in cells)
    assert all(not claim.differs for claim in cells)


def test_validation_and_test_over_the_folds_of_the_thesis() -> None:
    folds, splits = validated_parts(published())
    assert (len(folds.test), len(splits.test)) == (10, 4)
    assert folds.correlation == pytest.approx(-0.3595, abs=1e-4)
    assert folds.interval is not None
    assert folds.interval == pytest.approx((-0.8066, 0.3492), abs=1e-4)  # atanh and 1.96 / sqrt(7) by hand
    assert "the best on validation (fold 8) has 63.33 on test, the best there (fold 5) 64.28" in str(folds)
    assert splits.interval is None


def test_what_a_setting_does_to_a_rival_where_nobody_measured_the_proposed_method() -> None:
    claims = {(claim.proposed.method, claim.other.method): claim for claim in audit_claims(thesis_cases())}
    tuplet = claims["tuplet_margin", "margin"]
    wide, narrow = (
        next(
            row.value for row in published("cub", method="margin", score="R@1", source=f"Psomas 2020, Table 6{letter}")
        )
        for letter in "cb"
    )
    assert tuplet.setting_alone == pytest.approx(wide - narrow)
    assert (tuplet.same_setting, tuplet.explained, tuplet.measured) == (None, None, True)
    assert claims["ranked_list", "proxy_nca"].setting_alone is not None  # of the rival's own network
    assert not claims["tuplet_margin", "hdc"].measured
    assert sum(claim.measured for claim in claims.values()) == 7


def test_recall_at_one_and_precision_at_one_are_one_number() -> None:
    results = [Result("p", "cub", "R@1", "proxy_nca_pp", "vgg", 8, value=0.7, proposed=True)]
    (claim,) = audit_claims([*results, Result("p", "cub", "R@1", "contrastive_c2", "googlenet", 8, value=0.4)])
    pairs = {
        (row.source, row.dim): row.value - other.value
        for row in published("cub", method="proxy_nca_pp", score="P@1")
        for other in published("cub", method="contrastive_c2", score="P@1")
        if (row.source, row.dim) == (other.source, other.dim)
    }
    assert pairs
    assert claim.same_setting == pytest.approx(sum(pairs.values()) / len(pairs))


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "method,dataset,value,backbone,dim,proposed\nmine,cub,71.5,resnet50,512,yes\nmargin,cub,63.6,resnet50,128,\n"
    )
    (claim,) = audit_claims(read_results(path))
    assert claim.claimed == pytest.approx(0.079)
    assert claim.differs == ("dimensions",)
    path.write_text("method,dataset\nmine,cub\n")
    with pytest.raises(InputError, match="lacks value"):
        read_results(path)
    path.write_text("method,dataset,value\nmine,cub,many\nown,cub,101\n")
    with pytest.raises(DataError, match="line 2: could not convert") as caught:
        read_results(path)
    assert "line 3: a value is from 0 to 1" in str(caught.value)


def test_the_verb(tmp_path: Path) -> None:
    run = CliRunner().invoke
    told = run(app, ["audit-claims"])
    assert told.exit_code == 0
    assert "comparisons are unfair" in told.output
    asked = run(app, ["audit-claims", "--published", "--dataset", "cub", "--method", "margin", "--json"])
    assert '"other": "lifted_structure"' in asked.output
    assert run(app, ["audit-claims", "--published", "--method", "nobody"]).exit_code != 0
    assert run(app, ["audit-claims", "--dataset", "glyphs"]).exit_code != 0
    assert "Pearson -0.36 (-0.81 to +0.35)" in run(app, ["audit-claims", "--published", "--dataset", "cub"]).output
    steps = run(app, ["audit-claims", "--published", "--score", "steps", "--with", "ccp"]).output
    assert "claimed: +58 % steps" in steps
    assert run(app, ["audit-claims", "--with", "ccp"]).exit_code != 0
    assert run(app, ["audit-claims", "--published", "--score", "steps", "--with", "nothing"]).exit_code != 0


def test_the_figures_of_the_thesis(tmp_path: Path) -> None:
    drawn = CliRunner().invoke(app, ["tournament", "--figures", str(tmp_path / "thesis")])
    assert drawn.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "thesis").iterdir()) == [f"figure-{n}.svg" for n in range(27, 33)]
    (tmp_path / "table.csv").write_text("experiment,a,b\n1,2,3\n")
    refused = CliRunner().invoke(app, ["tournament", str(tmp_path / "table.csv"), "--figures", str(tmp_path)])
    assert refused.exit_code != 0
