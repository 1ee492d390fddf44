"""Fair comparisons of papers, and what is left of the others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import DataError, InputError, UnknownName
from vicinal.literature import published
from vicinal.literature.claims import (
    Result,
    as_results,
    audit_claims,
    of_method,
    read_results,
    summary,
    thesis_cases,
    unknown_names,
    with_and_without,
)
from vicinal.literature.tables import ALSO_CALLED, known_names, spelled, thesis_tables
from vicinal.literature.validation import validated_parts

pytestmark = pytest.mark.unit


def test_margin_against_lifted_structure_as_the_thesis_has_it() -> None:
    claims = {(claim.proposed.paper, claim.other.method): claim for claim in audit_claims(thesis_cases())}
    lifted, n_pair = (claims["Wu et al. 2017", name] for name in ("lifted_structure", "n_pair"))
    assert (lifted.fair, lifted.differs) == (False, ("network", "dimensions"))
    assert lifted.same_setting == pytest.approx(0.6300 - 0.6016)  # Table 6b
    assert n_pair.same_setting == pytest.approx(0.6300 - 0.5891)
    assert lifted.explained == pytest.approx(1 - 0.0284 / 0.2)
    assert lifted.exact
    assert "86 % of the claimed difference disappears" in str(lifted)


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
    assert "difference: -11 % steps" in str(anchor)
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
    with pytest.raises(DataError, match=r"mine\.csv.*\n.*line 2, column value: .*; got 'many'") as caught:
        read_results(path)
    assert "line 3, column value: must be from 0 to 1, or from 0 to 100 in per cent; got '101'" in str(caught.value)
    path.write_text("method,dataset,value\n")
    with pytest.raises(InputError, match="no rows"):
        read_results(path)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("a,cub,60,12.5,,R@1", "column dim: must be a whole number of at least 1, or empty; got '12.5'"),
        ("a,cub,60,0,,R@1", "column dim: must be a whole number of at least 1, or empty; got '0'"),
        ("a,cub,-1,64,,R@1", "column value: must be a number of at least 0, or empty; got '-1'"),
        ("a,cub,inf,64,,R@1", "got 'inf'"),
        ("a,cub,nan,64,,R@1", "got 'nan'"),
        ("a,cub,0,64,,steps", "column value: steps must be above 0; got '0'"),
        ("a,cub,60,64,perhaps,R@1", "column proposed: must be yes or empty; got 'perhaps'"),
        (",cub,60,64,,R@1", "column method: must not be empty"),
        ("a,cub,54,000,64,,steps", "more cells than in the first line"),
    ],
)
def test_what_is_wrong_in_a_table_is_told_by_line_and_column(row: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"method,dataset,value,dim,proposed,score\n{row}\n")
    with pytest.raises(DataError, match="line 2, ") as caught:
        read_results(path)
    assert told in str(caught.value)


def test_units_are_those_of_a_table_and_score_not_of_a_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "paper,method,dataset,score,value\n"
        "p,a,cub,MAP@R,1.2\np,b,cub,MAP@R,0.9\n"  # per cent, of which one is below 1
        "p,a,cub,R@1,0.612\np,b,cub,R@1,1\n"  # shares, in the same file
        "q,a,cub,R@1,61.2\nq,b,cub,R@1,1\n"  # per cent, of another paper
        'p,a,cub,steps,"12000"\np,b,cub,steps,0.5\n'
    )
    values = [result.value for result in read_results(path)]
    assert values == pytest.approx([0.012, 0.009, 0.612, 1, 0.612, 0.01, 12000, 0.5])


def test_names_of_papers_are_those_of_vicinal(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "Method, Dataset ,value,backbone,dim,pooling,image_size,proposed,score\n"
        "My Own,CUB-200-2011,71.5,ResNet50,128,GAP+GMP,224,yes,recall@1\n"
        "Margin,CUB,63.6,resnet-50,128,both,224,,R@1\n"
        "ProxyNCA++,cub,63.6,resnet_50,128,Both,224,,r@1\n"
    )
    results = read_results(path)
    margin, proxies = audit_claims(results)
    assert margin.fair is proxies.fair is True
    assert (margin.proposed.method, margin.other.method, proxies.other.method) == ("My Own", "margin", "proxy_nca_pp")
    assert {result.dataset for result in results} == {"cub"}
    assert unknown_names(results) == []
    strange = [*results, Result("p", "birds", "R@1", "margn", "vgg", value=0.5)]
    told = unknown_names(strange)
    assert ["'birds'" in told[0], "'vgg'" in told[1], "did you mean 'margin'" in told[2]] == [True] * 3


def test_spellings_never_change_a_name_that_is_known() -> None:
    for kind in ("dataset", "score", "method", "backbone", "pooling"):
        names = known_names(kind)
        assert [spelled(kind, name) for name in names] == list(names)
        assert set(ALSO_CALLED[kind].values()) <= set(names)
        assert all(spelled(kind, also) == name for also, name in ALSO_CALLED[kind].items())


def test_pooling_image_size_and_protocol_are_judged_in_published_numbers() -> None:
    poolings = {(row.source.split(",")[0][:6], row.pooling, row.image_size) for row in published()}
    assert poolings == {
        ("Psomas", "both", 224),
        ("Gürbüz", "average", 227),
        ("Musgra", "average", 227),
        ("A unif", "max", 227),
        ("A unif", "", None),  # quoted from others
    }
    assert all(claim.fair for claim in with_and_without(published(score="steps"), "ccp"))
    claims = audit_claims(of_method(as_results(published("cub", score="R@1")), "raw+valid_triplets"))
    soft = [claim for claim in claims if claim.other.method == "soft_triple" and claim.other.dim == 512]
    assert {claim.differs[-1] for claim in soft} == {"image size", "protocol"}
    assert all("pooling" in claim.differs and not claim.unknown for claim in soft)
    assert "  not known: network, dimensions, pooling, image size\n" in str(claims[-1])


def test_the_nearest_setting_that_was_measured_is_asked() -> None:
    rival = Result("p", "cub", "R@1", "triplet", "googlenet", 64, value=0.4)
    mine = Result("p", "cub", "R@1", "margin", "resnet50", 128, value=0.7, proposed=True)
    settings = {}
    for pooling in (None, "both", "max"):
        (claim,) = audit_claims([replace(mine, pooling=pooling), rival])
        settings[pooling] = (claim.settings, claim.exact)
    assert settings[None] == settings["both"] == (settings["max"][0], True)
    assert settings["max"][1] is False


def test_differences_of_several_papers_are_nobodys_claim() -> None:
    claims = audit_claims(as_results(published("cub", score="R@1")))
    assert not any("claim" in str(claim) or "fair" in str(claim) for claim in claims)
    told = summary(claims)
    assert f"of {len(claims)} differences are between settings that differ" in told
    assert "no paper claims them" in told
    assert "unfair" not in told
    assert "14 of 14 comparisons are unfair." in summary(audit_claims(thesis_cases()))


def test_a_method_is_proposed_only_where_it_stands_in_a_table() -> None:
    claims = audit_claims(of_method(thesis_cases(), "Margin"))
    assert {claim.proposed.method for claim in claims} == {"margin"}
    with pytest.raises(UnknownName, match="did you mean 'margin'"):
        of_method(thesis_cases(), "margn")


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
    for asked_for, told_of in (
        (["--dataset", "cubb"], "Unknown dataset 'cubb'; did you mean 'cub'?"),
        (["--score", "R@3"], "Unknown score 'R@3'"),
        (
            ["--score", "steps", "--with", "cpp"],
            "Unknown addition 'cpp'; did you mean 'ccp'? Choose from: ccp, memory.",
        ),
        (["--method", "margn"], "Unknown method 'margn'; did you mean 'margin'?"),
    ):
        with pytest.raises(UnknownName, match=re.escape(told_of)):
            run(app, ["audit-claims", "--published", *asked_for], catch_exceptions=False, standalone_mode=False)


def test_the_verb_with_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "method,dataset,value,score\na,birds,12000,steps\nb,birds,24000,steps\na,birds,1.2,R@1\nb,birds,1,R@1\n"
    )
    told = CliRunner().invoke(app, ["audit-claims", str(path), "--score", "Steps"]).output
    assert "a has 12,000 steps" in told
    assert "claimed: -50 % steps" in told
    assert "R@1" not in told
    assert "Unknown dataset 'birds'" in told
