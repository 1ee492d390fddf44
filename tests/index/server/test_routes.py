"""The routes: what each answers, and that it is what the library says."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from vicinal.index import Index
from vicinal.neighbours import Reranking

TOKEN = "correct-horse"


def test_info(asked: Any, vectors: Index, pictures: Index) -> None:
    with asked(vectors) as client:
        info = client.get("/api/info").json()
    assert info["count"] == 60
    assert info["labels"] == ["c0", "c1", "c2"]
    assert info["columns"]["year"] == "integer"
    assert not info["can_embed"]
    assert not info["has_images"]
    with asked(pictures) as client:
        info = client.get("/api/info").json()
    assert info["can_embed"]
    assert info["has_images"]


def test_vectors_and_items_to_the_last_digit(asked: Any, vectors: Index) -> None:
    query = [0.1, 0.2, 0.3, -0.7]
    with asked(vectors) as client:
        reply = client.post("/search?k=5&where=label='c1'", json={"vector": query}).json()
        assert [(hit["id"], hit["similarity"]) for hit in reply["hits"]] == [
            (hit.id, hit.similarity) for hit in vectors.search(query, k=5, where="label = 'c1'")
        ]
        assert reply["exact"]
        assert reply["generation"] == vectors.generation
        expected = [(hit.id, hit.similarity, hit.label) for hit in vectors.search(item="n7", k=4)]
        for got in (client.get("/neighbours/n7?k=4"), client.post("/search?k=4", json={"item": "n7"})):
            hits = got.json()["hits"]
            assert [(hit["id"], hit["similarity"], hit["label"]) for hit in hits] == expected
            assert got.json()["query"] == {"item": "n7", "label": "c1"}


def test_pictures_to_the_last_digit(asked: Any, pictures: Index, photos: Path) -> None:
    file = photos / "a" / "2.png"
    expected = [(hit.id, hit.similarity) for hit in pictures.search(file, k=3)]
    with asked(pictures) as client:
        raw = client.post("/search", content=file.read_bytes(), headers={"content-type": "image/png"})
        form = client.post("/search", files={"file": ("any", file.read_bytes(), "image/png")})
        for reply in (raw.json(), form.json()):
            assert [(hit["id"], hit["similarity"]) for hit in reply["hits"]] == expected
            assert reply["upload"]
        hit = raw.json()["hits"][0]
        assert hit["image"] == f"/items/{quote(str(file), safe='')}/image"
        small = client.get(hit["image"])
        assert small.headers["content-type"] == "image/jpeg"
        again = client.get(hit["image"], headers={"if-none-match": small.headers["etag"]})
        assert again.status_code == 304
        item = client.get(f"/items/{quote(str(file), safe='')}").json()
        assert item["path"] == str(file)


def test_a_picture_is_re_ranked_as_the_library_does(asked: Any, pictures: Index, photos: Path) -> None:
    file = photos / "a" / "2.png"
    with asked(pictures) as client:
        sent = client.post("/search?k=2&rerank=true", content=file.read_bytes(), headers={"content-type": "image/png"})
        neighbours = client.get(f"/neighbours/{quote(str(file), safe='')}?k=2&rerank=true")
    for reply, expected in (
        (sent, pictures.search(file, k=2, rerank=Reranking())),
        (neighbours, pictures.search(item=str(file), k=2, rerank=Reranking())),
    ):
        assert [(hit["id"], hit["similarity"]) for hit in reply.json()["hits"]] == [
            (hit.id, hit.similarity) for hit in expected
        ]


def test_a_list_of_items(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        reply = client.get("/items", params={"where": "year < 10", "limit": 3, "offset": 1, "vectors": True}).json()
    items, rows = vectors.get("year < 10")
    assert reply["count"] == 10
    assert [item["id"] for item in reply["items"]] == [item.id for item in items[1:4]]
    assert [item["vector"] for item in reply["items"]] == rows[1:4].tolist()


def test_changes_need_permission_and_token(asked: Any, vectors: Index) -> None:
    body = {"vectors": [[1, 0, 0, 0]], "ids": ["new"], "labels": ["c9"]}
    with asked(vectors) as client:
        assert client.post("/items", json=body).status_code == 403
    with asked(vectors, token=TOKEN, writable=True, public=True) as client:
        assert client.post("/items", json=body).status_code == 401
        assert "new" not in [item["id"] for item in client.get("/items?limit=100").json()["items"]]
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        assert client.post("/items", json=body).json()["added"] == 1
        assert client.get("/items/new").json()["label"] == "c9"
        assert client.delete("/items/new").json()["removed"] == 1
        assert client.delete("/items/new").status_code == 404
        assert client.get("/items/new").status_code == 404


def test_health_docs_and_metrics(asked: Any, vectors: Index) -> None:
    with asked(vectors) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready"}
        assert "POST /search" in client.get("/docs").text
        assert "/search" in client.get("/openapi.json").json()["paths"]
        client.get("/neighbours/c0")
        told = client.get("/metrics")
        assert told.headers["content-type"].startswith("text/plain; version=")
        lines = told.text.splitlines()
        assert 'vicinal_requests_total{route="/health",status="200"} 1.0' in lines
        assert f"vicinal_items {len(vectors)}.0" in lines
        assert "vicinal_requests_running 1.0" in lines
        assert any(line.startswith('vicinal_request_seconds_bucket{le="0.01",route="/health"}') for line in lines)
        assert any(line.startswith("vicinal_info{") and vectors.generation in line for line in lines)
    with asked(vectors) as other:  # another server in the same process counts for itself
        assert "/health" not in other.get("/metrics").text


def test_fields_of_a_form_become_what_their_columns_hold(asked: Any, tmp_path: Path, photos: Path, model: Any) -> None:
    files = sorted(photos.rglob("*.png"))
    with Index.build(tmp_path / "i", model) as index:
        index.add([Image.open(files[0])], ids=[1], labels=[True])
        with asked(index, token=TOKEN, writable=True) as client:
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            picture = {"file": files[1].read_bytes()}
            for key, label, expected in (("2", "True", True), ("3", "false", False)):
                fields = {"id": key, "label": label, "metadata": '{"year": 1999}'}
                assert client.post("/items", files=picture, data=fields).json()["added"] == 1
                (item,) = index.get({"id": int(key)})[0]
                assert (item.label, dict(item.metadata)) == (expected, {"year": 1999})
            for fields in (
                {"id": "4", "label": "maybe"},
                {"id": "four"},
                {"label": "true"},
                {"id": "4", "metadata": "[1]"},
                {"id": "4", "metadata": '{"\\ud800": 1}'},
                {"item": '{"id": 4, "labels": 1}'},
            ):
                assert client.post("/items", files=picture, data=fields).status_code == 422, fields
