from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from vicinal.comparing import compare
from vicinal.comparing.repeated_call import call_in_python

pytestmark = pytest.mark.unit


def asked(**given: Any) -> dict[str, Any]:
    defaults = {name: parameter.default for name, parameter in inspect.signature(compare).parameters.items()}
    return defaults | {"data": "digits", "losses": ["triplet"], "out": "runs/x", "changes": {}} | given


def test_only_what_was_asked_is_written_and_it_is_python() -> None:
    text = call_in_python(compare, asked(seeds=2, jobs=3, dims=[], progress=False, changes={"steps": 30}))
    assert text.splitlines()[-1] == 'found = vc.compare("digits", ["triplet"], out="runs/x", seeds=2, steps=30)'


def test_values_come_back_as_they_were_given() -> None:
    losses = ["triplet+semi_hard", Path("my losses/a.toml"), 'quo"ted', "back\\slash"]
    options = {"backbone_options": {"widths": [8, 16]}, "freeze": True, "learning_rate": 1e-4, "weights": None}
    text = call_in_python(compare, asked(losses=losses, dims=(64,), out=Path("runs/x"), changes=options))
    (call,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert [ast.literal_eval(one) for one in call.args] == ["digits", [str(loss) for loss in losses]]
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert named == {"out": "runs/x", "dims": [64], **options}
    assert max(map(len, text.splitlines())) < 110


def test_a_function_is_written_by_its_name() -> None:
    def my_loss() -> None: ...

    assert "[my_loss]" in call_in_python(compare, asked(losses=[my_loss]))
