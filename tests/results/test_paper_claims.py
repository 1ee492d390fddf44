"""Fair comparisons of papers, and what is left of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import DataError, InputError
from vicinal.results import published
from vicinal.results.paper_claims import Result, as_results, audit_claims, read_results, thesis_cases

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
    for dataset in ("cub", "cars196", "sop", "inshop"):
        rows = published(dataset)
        claims = audit_claims(as_results(rows))
        assert claims
        asked = {(claim.other.method, claim.other.score) for claim in claims}
        asked |= {(claim.proposed.method, claim.proposed.score) for claim in claims}
        assert asked == {(row.method, row.score) for row in rows if not row.part and not row.note}


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


def test_the_figures_of_the_thesis(tmp_path: Path) -> None:
    drawn = CliRunner().invoke(app, ["tournament", "--figures", str(tmp_path / "thesis")])
    assert drawn.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "thesis").iterdir()) == [f"figure-{n}.svg" for n in range(27, 33)]
    (tmp_path / "table.csv").write_text("experiment,a,b\n1,2,3\n")
    refused = CliRunner().invoke(app, ["tournament", str(tmp_path / "table.csv"), "--figures", str(tmp_path)])
    assert refused.exit_code != 0
