"""JSON objects with a checksum: every changed bit is seen."""

from __future__ import annotations

import json

import pytest

from vicinal._util.files import sealed, unsealed

pytestmark = pytest.mark.unit

TEXTS = [b"{}", b'{"a": 1}', b'{\n  "a": [1, 2],\n  "b": "x"\n}', '{"name": "Zaunkönig"}'.encode()]


@pytest.mark.parametrize("text", TEXTS[1:])
def test_sealed_text_is_json_with_the_same_content(text: bytes) -> None:
    values = json.loads(sealed(text))
    assert len(values.pop("sha256")) == 16
    assert values == json.loads(text)
    assert unsealed(sealed(text)) == (text, "sealed")


@pytest.mark.parametrize("text", TEXTS)
def test_what_has_no_checksum_is_torn_unless_it_ends_as_one_does(text: bytes) -> None:
    assert unsealed(text)[1] == ("damaged" if text.endswith(b'"}') else "torn")


def test_no_flipped_bit_is_taken_for_the_original() -> None:
    whole = sealed(TEXTS[1])
    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            assert unsealed(bytes(changed))[1] == "damaged"


@pytest.mark.parametrize("length", range(1, 30))
def test_a_line_that_was_cut_short_counts_as_half_written(length: int) -> None:
    assert unsealed(sealed(TEXTS[1])[:-length])[1] == "torn"
