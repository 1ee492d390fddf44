"""What a server does not do: answer strangers, take too much, show what is private, or read other files."""

from __future__ import annotations

import csv
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from vicinal.index.client import form_body
from vicinal.index.server import ServerSettings
from vicinal.index.server.served import SealedIds
from vicinal.index.server.uploads import form_fields

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


def test_settings_that_would_mean_nothing_are_refused(asked: Any, vectors: Index, tmp_path: Path) -> None:
    for name in ("http://birds.example", "birds.example:8765", "birds.example/page", ""):
        with pytest.raises(InputError, match="--name takes a name"):
            ServerSettings(names=(name,))
    with pytest.raises(InputError, match="is not a folder"):
        ServerSettings(root=tmp_path / "nowhere")
    with (
        pytest.raises(InputError, match=r"secrets cannot be kept private.* year, secret"),
        asked(vectors, private=("year", "secrets")),
    ):
        pass
    with asked(vectors, names=("Birds.Example",)) as client:
        assert client.get("/health", headers={"Host": "birds.example:99"}).status_code == 200


def test_token(asked: Any, vectors: Index) -> None:
    with asked(vectors, token=TOKEN) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/api/info").status_code == 401
        assert client.get("/api/info", headers={"Authorization": "Bearer wrong-horse"}).status_code == 401
        assert client.get("/api/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_person_gives_the_token_once(asked: Any, vectors: Index) -> None:
    with asked(vectors, token=TOKEN) as client:
        assert "error" in client.get("/").json()  # a program's answer
        page = client.get("/?item=n1", headers={"Accept": "text/html"})
        assert page.status_code == 401
        assert '<form class="settings" method="post">' in page.text
        assert "<script" not in page.text
        assert client.get("/static/page.css").status_code == 200
        wrong = client.post("/", data={"token": "wrong-horse"})
        assert wrong.status_code == 401
        assert "not this server&#x27;s token" in wrong.text
        assert "set-cookie" not in wrong.headers
        assert client.post("/", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.get("/api/info").status_code == 401
        let_in = client.post("/?item=n1", data={"token": TOKEN}, follow_redirects=False)
        assert (let_in.status_code, let_in.headers["location"]) == (303, "/?item=n1")
        cookie = let_in.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/api/info").status_code == 200
        assert client.get("/api/info", headers={"Authorization": "Bearer wrong-horse"}).status_code == 401


def test_an_address_with_the_token(asked: Any, vectors: Index) -> None:
    with asked(vectors, token=TOKEN) as client:
        assert client.get("/?token=wrong-horse", follow_redirects=False).status_code == 401
        assert client.get(f"/api/info?token={TOKEN}").status_code == 401
        let_in = client.get(f"/?token={TOKEN}&item=n%201", follow_redirects=False)
        assert (let_in.status_code, let_in.headers["location"]) == (303, "/?item=n+1")
        assert client.get("/").status_code == 200
    with asked(vectors, token="another-horse") as other:
        assert other.get("/api/info", headers={"Cookie": let_in.headers["set-cookie"]}).status_code == 401
        assert other.get("/api/info", headers={"Cookie": f"vicinal_token={TOKEN}"}).status_code == 401


def test_without_a_token_there_is_nothing_to_sign_in_to(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        assert client.post("/", data={"token": TOKEN}).status_code == 405


def test_host_and_origin(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 400
        assert client.get("/health", headers={"Host": "localhost:99"}).status_code == 200
        assert client.get("/health", headers={"Host": "["}).status_code == 400
        body = {"vector": [1, 0, 0, 0]}
        for origin in ("http://evil.example", "http://[", "null"):
            assert client.post("/search", json=body, headers={"Origin": origin}).status_code == 403
        reply = client.post("/search", json=body)
        assert reply.headers["content-security-policy"].startswith("default-src 'self'")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers


def test_limits(asked: Any, pictures: Index) -> None:
    with asked(pictures, max_upload=2000, max_k=5, rate=1.0) as client:
        assert client.post("/search?k=5", content=bytes(3000)).status_code == 413
        assert client.post("/search?k=6", content=b"x").status_code == 422
        statuses = [client.get("/health").status_code for _ in range(6)]
        assert statuses[-1] == 429
    with asked(pictures, max_concurrent=0) as client:
        reply = client.get("/health")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")


def piece_by_piece(client: Any, path: str, kind: str, most: int) -> int:
    """The status of the reply to a body that never ends; more pieces than may be read are an error."""
    pieces = iter([{"type": "http.request", "body": bytes(1000), "more_body": True}] * most)
    headers = {"host": "127.0.0.1", "content-type": kind, "authorization": f"Bearer {TOKEN}"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(pieces)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    client.portal.call(client.app, scope, receive, send)
    return sent[0]["status"]


def test_every_body_is_counted_while_it_arrives(asked: Any, vectors: Index) -> None:
    with asked(vectors, max_upload=2500, writable=True, token=TOKEN) as client:
        for path in ("/search", "/same", "/review", "/items"):
            for kind in ("application/json", "multipart/form-data; boundary=x"):
                assert piece_by_piece(client, path, kind, most=3) == 413, path
        claims = client.request("GET", "/health", content=b"x", headers={"Content-Length": "3000"})
        assert (claims.status_code, claims.headers["connection"]) == (413, "close")


def test_json_is_no_longer_than_what_it_carries(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        padded = b'{"item": "n1"' + b" " * 4_000_000 + b"}"
        assert client.post("/search", content=padded, headers={"Content-Type": "application/json"}).status_code == 413
        assert client.post("/review", content=padded, headers={"Content-Type": "application/json"}).status_code == 413


def test_who_may_not_write_is_told_before_the_body_is_read(asked: Any, vectors: Index) -> None:
    def unread() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    with asked(vectors) as client:
        for method, path in (("POST", "/items"), ("PATCH", "/items"), ("DELETE", "/items/n1")):
            assert client.request(method, path, content=unread()).status_code == 403
    with asked(vectors, public=True) as client:
        assert client.post("/review", content=unread()).status_code == 403


ODD = [
    ("/search", b'{"item": "\\ud800"}', 400),
    ("/search", b'{"item": "\xed\xa0\x80"}', 400),
    ("/search", b'{"item": "a\\u0000b"}', 404),
    ("/search", b'{"item": 1' + b"0" * 6000 + b"}", 400),
    ("/search", b'{"vector": [NaN, 0, 0, 0]}', 422),
    ("/search", b"[" * 100_000, 400),
    ("/search", b"", 400),
    ("/review", b'{"item": "\\ud800", "decision": "keep"}', 400),
    ("/review", b'{"item": "n1", "decision": "relabel", "new_label": "\\ud800"}', 400),
    ("/same", b'{"a": {"item": "\\ud800"}, "b": {"item": "n1"}}', 400),
    ("/items", b'{"vectors": [[1, 0, 0, 0], [1, 0]], "ids": ["a", "b"]}', 422),
    ("/items", b'{"vectors": [[1, 0, 0, 0]], "ids": ["\\ud800"]}', 400),
    ("/items", b'{"vectors": [[1, 0, 0, 0]], "ids": ["a"], "metadata": {"\\ud800": [1]}}', 400),
    ("/items", b'{"vectors": [[1, 0, 0, 0]], "ids": []}', 400),
    ("/items", b'{"vectors": [[1, 0]], "ids": ["a"]}', 400),
]


@pytest.mark.parametrize(("path", "body", "status"), ODD)
def test_odd_json_is_the_senders_fault(asked: Any, vectors: Index, path: str, body: bytes, status: int) -> None:
    with asked(vectors, writable=True, token=TOKEN) as client:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        reply = client.post(path, content=body, headers=headers)
        assert reply.status_code == status, reply.text
        assert set(reply.json()) == {"error"}


FORM = "multipart/form-data; boundary=x"
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b""),
        (FORM, HEAD + b"cut short"),
        (FORM, b'--x\r\nContent-Disposition: form-data; name="file"\r\n--x--'),
        (FORM, b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--"),
        (FORM, b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--x--"),
        (FORM, 20 * HEAD + b"--x--"),
        (FORM, b"--x\r\n" + bytes(5000) + b"\r\n\r\n1\r\n--x--"),
        ("multipart/form-data", HEAD + b"1\r\n--x--"),
        ("multipart/form-data; boundary*=utf-8''%F0%9F; boundary=\"", HEAD + b"1\r\n--x--"),
    ],
)
def test_odd_forms_are_the_senders_fault(asked: Any, pictures: Index, kind: str, body: bytes) -> None:
    with asked(pictures) as client:
        for path in ("/search", "/same"):
            reply = client.post(path, content=body, headers={"Content-Type": kind})
            assert reply.status_code in (400, 422), reply.text


def test_files_may_hold_anything_but_the_boundary() -> None:
    content = np.random.default_rng(0).bytes(50_000) + b"\r\n--\r\n\r\n-\r\n--edgy\r\n\r\n"
    kind, body = form_body({"item": "ä\r\n"}, {"a": content, "b": b""})
    assert form_fields(kind, body, 3) == {"item": "ä\r\n", "a": content, "b": b""}
    with pytest.raises(ValueError, match="more than 2 fields"):
        form_fields(kind, body, 2)


def test_whole_numbers_of_any_length_are_ids_or_none(asked: Any, tmp_path: Path) -> None:
    with Index.of_vectors(tmp_path / "i", np.eye(3), ids=[0, 7, -5]) as index, asked(index) as client:
        for text, status in (("0" * 5000, 200), ("007", 200), ("-5", 200), ("9" * 5000, 404), ("-", 404), ("7a", 404)):
            assert client.get(f"/items/{text}").status_code == status, text[:10]
        assert client.get(f"/items/{'0' * 19}{'9' * 30}").status_code == 404
        assert client.get("/items/007").json()["id"] == 7


def test_what_nobody_foresaw_is_counted_and_carries_the_headers(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:

        def broken() -> None:
            raise RuntimeError("a fault of the server")

        client.app.state.served.overview = broken
        reply = client.get("/api/info")
        assert reply.status_code == 500
        assert "log" in reply.json()["error"]
        assert "RuntimeError" not in reply.text
        assert reply.headers["content-security-policy"].startswith("default-src 'self'")
        assert 'vicinal_requests_total{route="/api/info",status="500"} 1' in client.get("/metrics").text


def test_a_threshold_that_links_nearly_everything(asked: Any, vectors: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.collection.duplicates.MOST_LINKS", 100)
    with asked(vectors) as client:
        for _ in range(600):
            reply = client.get("/inspect/duplicates?threshold=-1")
            if reply.status_code != 202:
                break
            time.sleep(0.02)
        assert reply.status_code == 422
        assert "raise the threshold" in reply.json()["error"]


def test_one_address_does_not_take_all_places(asked: Any, vectors: Index) -> None:
    assert ServerSettings(max_concurrent=40).max_per_address == 40  # on this machine everybody has one address
    settings = ServerSettings(host="0.0.0.0", public=True, max_concurrent=40)
    assert (settings.max_per_address, settings.max_connections_per_address) == (10, 40)
    with asked(vectors, host="0.0.0.0", public=True, max_concurrent=4) as client:
        begun, let_go = threading.Event(), threading.Event()

        def slow() -> Any:
            begun.set()
            let_go.wait(60)
            raise RuntimeError("enough")

        client.app.state.served.overview = slow
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.get, "/api/info")
            assert begun.wait(60)
            second = client.get("/health")
            let_go.set()
            assert first.result().status_code == 500
        assert second.status_code == 429
        assert client.get("/health").status_code == 200


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
    with pytest.raises(DataError, match="it has 9,000 x 9,000 pixels"):
        model.encode(tmp_path / "bomb.png")
    with Image.open(tmp_path / "bomb.png") as image, pytest.raises(DataError, match="it has 9,000"):
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


def test_reasons_decisions_and_tables_tell_nothing_private(asked: Any, pictures: Index, photos: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    file = str(photos / "a" / "1.png")
    with asked(pictures, private=("path", "label")) as client:
        keys = [item["id"] for item in client.get("/items").json()["items"]]
        why = client.get("/why", params={"item": keys[0], "hit": keys[1]})
        assert why.status_code == 200
        assert client.get("/why", params={"item": file, "hit": keys[1]}).status_code == 404
        decision = {"item": keys[0], "decision": "relabel", "new_label": "a secret name"}
        assert client.post("/review", json=decision).status_code == 200
        sent = client.get("/review.csv")
        (row,) = csv.DictReader(sent.text.splitlines())
        assert (row["id"], row["path"], row["label"], row["new_label"]) == (keys[0], "", "", "")
        assert row["decision"] == "relabel"
        while client.get("/export/ready").status_code == 202:
            time.sleep(0.02)
        table = parquet.read_table(BytesIO(client.get("/export/map.parquet").content))
        assert sorted(table["id"].to_pylist()) == sorted(keys)
        assert not {"path", "label"} & set(table.column_names)
        while (groups := client.get("/inspect/duplicates?threshold=-1")).status_code == 202:
            time.sleep(0.02)
        for reply in (why, sent, groups):
            assert str(photos) not in reply.text
            assert "secret name" not in reply.text
    written = (pictures.path / "review.csv").read_text()
    assert "a secret name" in written  # the owner's file has all of it
    assert str(photos) in written
    with asked(pictures) as client:
        (row,) = csv.DictReader(client.get("/review.csv").text.splitlines())
        assert row["path"] == row["id"]
        assert row["path"].startswith(str(photos))


def test_sealed_ids_cannot_be_made_by_others() -> None:
    ids = SealedIds("one secret")
    shown = ids.sealed("/photos/ä.png")
    assert ids.opened(shown) == "/photos/ä.png"
    assert SealedIds("another").opened(shown) is None
    for place in range(len(shown)):
        other = shown[:place] + ("A" if shown[place] != "A" else "B") + shown[place + 1 :]
        assert ids.opened(other) in (None, "/photos/ä.png")  # bits beyond the last byte mean nothing
    assert all(ids.sealed(str(number))[0].isalpha() for number in range(300))  # no formula in a table
    assert shown == SealedIds("one secret").sealed("/photos/ä.png")  # addresses can be shared
    assert ids.opened(ids.sealed("")) == ""
    assert {ids.opened(text) for text in ("", "i", "iAA", "i" + "A" * 64, "ié", shown[1:])} == {None}
    assert len({len(ids.sealed("x" * length)) for length in range(32)}) == 1  # lengths tell little


def test_a_link_out_of_the_root_is_not_followed(asked: Any, tmp_path: Path, photos: Path, model: Embedder) -> None:
    outside = tmp_path / "outside.png"
    Image.new("L", (20, 20)).save(outside)
    os.symlink(outside, photos / "a" / "link.png")
    with Index.build(tmp_path / "linked.index", model, photos) as index, asked(index) as client:
        images = {item["path"]: item["image"] for item in client.get("/items").json()["items"]}
        assert client.get(images[str(photos / "a" / "link.png")]).status_code == 404
        assert client.get(images[str(photos / "a" / "1.png")]).status_code == 200
