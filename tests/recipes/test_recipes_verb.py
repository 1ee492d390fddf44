"""`vicinal recipes`: the list, one recipe, a folder, JSON."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from vicinal.cli.recipes import recipes
from vicinal.errors import InputError
from vicinal.recipes import find_recipe, recipe_names

pytestmark = pytest.mark.unit

app = typer.Typer()
app.command()(recipes)


def shown(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_list_has_every_recipe_with_data_protocol_network_and_cost() -> None:
    text = shown()
    for name in recipe_names():
        assert (name if "/losses/" not in name else name.rpartition("/")[2]) in text
    lines = text.splitlines()
    row = next(number for number, line in enumerate(lines) if line.split()[:1] == ["ccp/sop"])
    assert lines[row].split() == ["ccp/sop", "sop", "bn_inception", "80,000,000"]
    assert "Stanford Online Products for chance-constrained proxies." in lines[row + 1]
    assert lines[row + 1].split()[-5:] == ["reality-check", "128", "dimensions", "at", "most"]
    assert "default, best on test" in text  # what leaks is said
    assert "in reality-check/losses: hpl, proxy_anchor, proxy_nca_pp, soft_triple" in text


def test_one_recipe_is_its_file() -> None:
    assert shown("thesis/cub-resnet50") == find_recipe("thesis/cub-resnet50").read_text()


def test_a_folder_lists_what_is_in_it() -> None:
    assert "thesis/losses/arcface" in shown("thesis/losses")
    assert "thesis" not in shown("ccp")


def test_json_is_for_scripts() -> None:
    everything = json.loads(shown("--json"))
    assert [each["name"] for each in everything] == recipe_names()
    one = json.loads(shown("glyphs", "--json"))
    assert (one["data"], one["protocol"], one["images_seen"]) == ("glyphs", "fixed-validation", 300 * 16 * 4)
    assert [each["loss"] for each in json.loads(shown("reality-check/losses", "--json"))] == [
        "proxy_anchor",  # of hpl
        "proxy_anchor",
        "proxy_nca_pp",
        "soft_triple",
    ]


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'omniglot'"):
        shown("omniglott")
