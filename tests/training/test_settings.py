"""Settings check themselves, all at once."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from vicinal.training.settings import Settings

pytestmark = pytest.mark.unit


def test_every_mistake_is_reported() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(steps=0, learning_rate=float("nan"), optimiser="lion", clip_norm=-1.0, patience="soon", stesp=3)
    assert {error["loc"][0] for error in caught.value.errors()} == {
        "steps",
        "learning_rate",
        "optimiser",
        "clip_norm",
        "patience",
        "stesp",
    }


def test_training_ends_by_steps_or_by_time() -> None:
    assert Settings(steps=None, seconds=5.0).steps is None
    with pytest.raises(ValidationError, match="seconds limits training"):
        Settings(steps=None)


def test_settings_cannot_be_changed_and_come_back_from_plain_data() -> None:
    settings = Settings(steps=7, clip_value=None)
    with pytest.raises(ValidationError, match="frozen"):
        settings.steps = 8
    assert Settings(**settings.model_dump()) == settings
