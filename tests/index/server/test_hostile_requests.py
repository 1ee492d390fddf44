"""Whatever is sent, the answer is no fault of the server's, memory does not grow, and it still answers."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import schemathesis
from PIL import Image

from vicinal.index import Index
from vicinal.index.server import ServerSettings, create_app

TOKEN = "a-token-of-the-tests"
FEW, MANY = 600, 10_000


def fault(reply: Any) -> bool:
    """A 5xx that is not a request to come back later."""
    return reply.status_code >= 500 and not (reply.status_code == 503 and "retry-after" in reply.headers)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the")  # what schemathesis does inside its own strategies
def test_what_the_description_allows_is_never_a_fault(vectors: Index) -> None:
    app = create_app(vectors, ServerSettings(writable=True, token=TOKEN, names=("testserver",)))
    presented = {"Authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=presented)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    seen = set()
    for operation in operations:

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=12,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def ask(case: Any) -> None:
            reply = case.call(headers=presented)
            seen.add(reply.status_code)
            assert not fault(reply), (reply.status_code, reply.text)
            assert "content-security-policy" in reply.headers

        ask()
    assert 200 in seen
    assert 421 not in seen  # the requests got past the check of the header Host
    assert 401 not in seen


def picture(kind: str) -> bytes:
    made = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(made, kind)
    return made.getvalue()


def promising(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises more pixels than anybody wants to decode."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def hostile(seed: int) -> tuple[bytes, dict[str, str]]:
    """A request that nobody means well."""
    rng = random.Random(seed)
    whole = picture(rng.choice(["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"]))
    place = rng.randrange(len(whole))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << rng.randrange(8)
    bodies: list[Callable[[], bytes]] = [
        lambda: whole[:place],
        lambda: bytes(flipped),
        lambda: whole + rng.randbytes(200),
        lambda: b"PK\x03\x04" + whole,
        lambda: b"<html><script>alert(1)</script>" + whole,
        lambda: rng.randbytes(rng.randrange(300)),
        lambda: promising(rng.choice([9_000, 13_000, 2**31 - 1]), rng.choice([13_000, 2**31 - 1])),
        lambda: promising(0, 0),
        lambda: b"[" * rng.choice([10, 100_000]),
        lambda: json.dumps({"vector": [rng.choice([1e308, -1e308, 0.0])] * rng.randrange(40)}).encode(),
        lambda: b'{"vector": [NaN, Infinity, 1e999, 1]}',
        lambda: b'{"item": "\\ud800"}',
        lambda: json.dumps({"item": rng.choice([[], {}, None, 10**400, "x" * 9000])}).encode(),
        lambda: b"--b\r\nContent-Disposition: form-data; name=file; filename=../../x\r\n\r\n" + whole[:place],
        lambda: b"<svg xmlns='http://www.w3.org/2000/svg' width='99999' height='99999'/>",
    ]
    kind = rng.choice(
        [
            "image/png",
            "image/jpeg",
            "application/json",
            "multipart/form-data; boundary=b",
            "multipart/form-data",
            "x" * 99,
        ]
    )
    headers = {"Content-Type": kind}
    if rng.random() < 0.05:
        headers["X-Long"] = "y" * 20_000
    return rng.choice(bodies)(), headers


def resident() -> float:
    """Memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    "many", [pytest.param(FEW, marks=pytest.mark.slow), pytest.param(MANY, marks=pytest.mark.campaign)]
)
def test_hostile_uploads(pictures: Index, asked: Any, many: int) -> None:
    good = picture("PNG")
    with asked(pictures) as client:
        before = client.post("/search?k=3", content=good, headers={"Content-Type": "image/png"}).json()["hits"]
        codes: dict[int, int] = {}
        for seed in range(many):
            if seed == many // 4:
                memory = resident()  # after every kind has been there
            body, headers = hostile(seed)
            reply = client.post(f"/search?k={seed % 7}", content=body, headers=headers)
            assert not fault(reply), (seed, reply.status_code, reply.text)
            codes[reply.status_code] = codes.get(reply.status_code, 0) + 1
        assert resident() - memory < 100
        assert codes[400] > many / 10
        assert client.post("/search?k=3", content=good, headers={"Content-Type": "image/png"}).json()["hits"] == before
    print(dict(sorted(codes.items())))
