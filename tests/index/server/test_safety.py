"""What a server does not do: answer strangers, take too much, show what is private, or read other files."""

from __future__ import annotations

import os
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.index import Index
from vicinal.index.server import ServerSettings
from vicinal.index.server.sealed_ids import SealedIds

TOKEN = "correct-horse"


def png_that_promises(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


def test_settings_that_would_let_everybody_in_are_refused() -> None:
    with pytest.raises(InputError, match="--token"):
        ServerSettings(host="0.0.0.0")
    with pytest.raises(InputError, match="needs a token"):
        ServerSettings(writable=True)
    assert ServerSettings(host="0.0.0.0", public=True).allowed_rate == 100
    assert ServerSettings().allowed_rate == 0


def test_token(asked: Any, vectors: Index) -> None:
    with asked(vectors, token=TOKEN) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/api/info").status_code == 401
        assert client.get("/api/info", headers={"Authorization": "Bearer wrong-horse"}).status_code == 401
        assert client.get("/api/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_host_and_origin(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 400
        assert client.get("/health", headers={"Host": "localhost:99"}).status_code == 200
        body = {"vector": [1, 0, 0, 0]}
        assert client.post("/search", json=body, headers={"Origin": "http://evil.example"}).status_code == 403
        reply = client.post("/search", json=body)
        assert reply.headers["content-security-policy"].startswith("default-src 'self'")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers


def test_limits(asked: Any, pictures: Index) -> None:
    with asked(pictures, most_upload=2000, most_k=5, rate=1.0) as client:
        assert client.post("/search?k=5", content=bytes(3000)).status_code == 413
        assert client.post("/search?k=6", content=b"x").status_code == 422
        statuses = [client.get("/health").status_code for _ in range(6)]
        assert statuses[-1] == 429
    with asked(pictures, most_at_once=0) as client:
        reply = client.get("/health")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")


def test_pictures_that_are_none(asked: Any, pictures: Index) -> None:
    content = BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(content, "PNG")
    with asked(pictures) as client:
        for body, status in (
            (b"", 400),
            (b"not a picture", 415),
            (png_that_promises(13_000, 13_000), 413),
            (png_that_promises(60_000, 60_000), 413),
            (content.getvalue()[:900], 422),
        ):
            reply = client.post("/search", content=body, headers={"content-type": "image/png"})
            assert reply.status_code == status, reply.text
            assert set(reply.json()) == {"error"}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_library_refuses_many_pixels_at_the_header(tmp_path: Path, model: Embedder) -> None:
    (tmp_path / "bomb.png").write_bytes(png_that_promises(9_000, 9_000))
    with pytest.raises(DataError, match="its header promises 9,000 x 9,000 pixels"):
        model.encode(tmp_path / "bomb.png")
    with Image.open(tmp_path / "bomb.png") as image, pytest.raises(DataError, match="its header promises"):
        model.encode(image)


def test_private_columns(asked: Any, pictures: Index, vectors: Index, photos: Path) -> None:
    with asked(vectors, private=("secret",)) as client:
        assert "secret" not in client.get("/items/n1").json()["metadata"]
        assert client.get("/items?where=secret='s'").status_code == 403
    with asked(pictures, private=("path",), token=TOKEN) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        listed = client.get("/items")
        assert str(photos) not in listed.text
        item = listed.json()["items"][0]
        assert client.get(f"/items/{item['id']}").json() == item
        assert client.get(item["image"]).status_code == 200
        assert client.get(f"/items/{quote(str(photos / 'a' / '1.png'), safe='')}").status_code == 404
        assert client.get("/items?where=id>'/'").status_code == 403


def test_sealed_ids_cannot_be_made_by_others() -> None:
    ids = SealedIds("one secret")
    shown = ids.sealed("/photos/ä.png")
    assert ids.opened(shown) == "/photos/ä.png"
    assert SealedIds("another").opened(shown) is None
    for place in range(len(shown)):
        other = shown[:place] + ("A" if shown[place] != "A" else "B") + shown[place + 1 :]
        assert ids.opened(other) in (None, "/photos/ä.png")  # bits beyond the last byte mean nothing


def test_a_link_out_of_the_root_is_not_followed(asked: Any, tmp_path: Path, photos: Path, model: Embedder) -> None:
    outside = tmp_path / "outside.png"
    Image.new("L", (20, 20)).save(outside)
    os.symlink(outside, photos / "a" / "link.png")
    with Index.build(tmp_path / "linked.index", model, photos) as index, asked(index) as client:
        images = {item["path"]: item["image"] for item in client.get("/items").json()["items"]}
        assert client.get(images[str(photos / "a" / "link.png")]).status_code == 404
        assert client.get(images[str(photos / "a" / "1.png")]).status_code == 200
