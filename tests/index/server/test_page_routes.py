"""What the page asks for: its own files, the map, the queues and the reasons, each against the library."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.embedder import Embedder
from vicinal.index import Index
from vicinal.index.explain import class_centres, explain_pair
from vicinal.index.map import lay_out
from vicinal.index.server import models as page_reply_models

PAGE = Path(__file__).parents[3] / "vicinal" / "index" / "page"


def patiently(client: Any, path: str, **params: Any) -> Any:
    for _ in range(600):
        reply = client.get(path, params=params)
        assert reply.status_code in (200, 202), reply.text
        if reply.status_code == 200:
            return reply.json()
        assert reply.json()["working"]
        time.sleep(0.05)
    raise AssertionError(f"{path} was never answered")


def test_the_page_is_served_whole_and_asks_nobody_else(asked, vectors) -> None:
    with asked(vectors) as client:
        page = client.get("/")
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "script-src" not in page.headers["content-security-policy"]
        parts = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
        for part in PAGE.glob("*.js"):
            parts |= {f"/static/{name}" for name in re.findall(r'from "\./([^"]+)"', part.read_text())}
        assert "/static/map_view.js" in parts
        for part in parts:
            reply = client.get(part)
            assert reply.status_code == 200, part
            again = client.get(part, headers={"If-None-Match": reply.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for path in ("/static/nothing.js", "/static/..%2f__init__.py", "/static/"):
            assert client.get(path).status_code == 404


BROKEN = """
globalThis.document = { createElement: (tag) => ({ tag, append() {} }) };
const names = ["Belted_Kingfisher", "_a__b_", "no label", ""];
console.log(JSON.stringify(names.map((name) => breakable(name).map((part) => part.tag ?? part))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_names_may_be_broken_after_underscores() -> None:
    script = (PAGE / "elements.js").read_text() + BROKEN
    done = subprocess.run(
        ["node", "--input-type=module"], input=script, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == [
        ["Belted_", "wbr", "Kingfisher"],
        ["_", "wbr", "a__", "wbr", "b_"],
        ["no label"],
        [""],
    ]


def test_the_page_has_no_inline_script_or_style_and_no_address_outside() -> None:
    for part in PAGE.iterdir():
        text = part.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/)", text), part
        assert "innerHTML" not in text, part
        assert "eval(" not in text, part
    page = (PAGE / "index.html").read_text()
    assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


def test_every_part_of_the_page_is_used() -> None:
    text = "".join(part.read_text() for part in PAGE.iterdir())
    assert [part.name for part in PAGE.iterdir() if part.name != "index.html" and part.name not in text] == []


def test_the_map_is_the_layout_of_the_vectors(asked, vectors) -> None:
    items, rows = vectors.get()
    with asked(vectors) as client:
        head = patiently(client, "/map")
        assert (head["count"], head["method"], head["landmarks"]) == (60, "t-SNE", 60)
        content = client.get("/map/points", params={"generation": head["generation"]}).content
        places = np.frombuffer(content[: 8 * 60], "<f4").reshape(60, 2)
        labels = np.frombuffer(content[8 * 60 :], "<u4")
        assert places.tobytes() == lay_out(rows).positions.tobytes()
        assert [head["names"][label] for label in labels] == [item.label for item in items]
        ids = client.get("/map/ids", params={"from": 10, "to": 20}).json()["ids"]
        assert ids == [item.id for item in items[10:20]]
        assert client.get("/map/place", params={"item": ids[3]}).json() == {"place": 13}
        assert client.get("/map/place", params={"item": "gone"}).status_code == 404
        bits = client.get("/map/mask", params={"where": "year < 7 or label = 'c1'"}).content
        shown = np.unpackbits(np.frombuffer(bits, np.uint8))[:60].astype(bool)
        assert shown.tolist() == [item.metadata["year"] < 7 or item.label == "c1" for item in items]
        assert client.get("/map/mask", params={"where": "year <"}).status_code == 400
        assert client.get("/map/ids", params={"from": 0, "to": 99999}).status_code == 422
        assert client.get("/map/points", params={"generation": "other"}).status_code == 409


def test_the_map_follows_the_index(asked, vectors) -> None:
    with asked(vectors) as client:
        before = patiently(client, "/map")
        vectors.add(vectors=[[1.0, 2.0, 3.0, 4.0]], ids=["new"], labels=["c9"])
        after = patiently(client, "/map")
        assert (before["count"], after["count"]) == (60, 61)
        assert "c9" in after["names"]
        assert client.get("/map/points", params={"generation": before["generation"]}).status_code == 409


def test_the_table_of_the_map(asked, vectors) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    with asked(vectors, private=("secret",)) as client:
        assert patiently(client, "/export/ready") == {"ready": True}
        table = parquet.read_table(io.BytesIO(client.get("/export/map.parquet").content))
    assert table.column_names == ["id", "path", "label", "x", "y", "neighbours", "year"]
    assert table["id"].to_pylist() == [item.id for item in vectors.get()[0]]


def test_private_labels_are_nowhere(asked, vectors) -> None:
    with asked(vectors, private=("label",)) as client:
        assert patiently(client, "/map")["names"] == []
        assert client.get("/inspect/confused").status_code == 403
        assert client.get("/inspect/mislabelled").status_code == 403
        why = client.get("/why", params={"item": "n1", "hit": "n2"}).json()
        assert [entry["label"] for entry in why["classes"]] == [None]
        assert why["centres"] == []


def test_queues_show_pairs_and_pages(asked, vectors) -> None:
    with asked(vectors) as client:
        found = patiently(client, "/inspect/confused")
        assert found["count"] == 3  # noise: each two of three classes
        two = found["entries"][0]
        assert {two["first"], two["second"]} < {"c0", "c1", "c2"}
        assert two["examples"][0]["item"]["label"] != two["examples"][0]["nearest"]["label"]
        rest = patiently(client, "/inspect/confused", **{"from": 1, "limit": 1})
        assert rest["entries"] == found["entries"][1:2]


def test_planted_faults_are_found_and_decided(asked, tmp_path) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    rows = (6 * np.eye(8)[truth] + rng.normal(size=(100, 8))).astype(np.float32)
    labels = [f"c{label}" for label in truth]
    labels[3], rows[60] = "c2", rows[61]
    with Index.of_vectors(tmp_path / "i", rows, labels=labels) as index, asked(index) as client:
        wrong = patiently(client, "/inspect/mislabelled")
        assert wrong["entries"][0]["item"]["id"] == 3
        assert wrong["entries"][0]["proposed"] == "c0"
        assert {item["label"] for item in wrong["entries"][0]["own"]} == {"c2"}
        groups = patiently(client, "/inspect/duplicates", threshold=0.999999)
        assert [item["id"] for item in groups["entries"][0]["items"]] == [60, 61]
        reply = client.post(
            "/review", json={"item": 3, "decision": "relabel", "new_label": "=c0", "queue": "mislabelled"}
        )
        assert reply.json() == {"decision": "relabel", "new_label": "=c0"}
        assert client.post("/review", json={"item": "60", "decision": "remove"}).status_code == 200
        again = patiently(client, "/inspect/mislabelled")
        assert again["entries"][0]["item"]["review"] == {"decision": "relabel", "new_label": "=c0"}
        assert again["reviewed"] == 2
        rows_written = list(csv.reader(client.get("/review.csv").text.splitlines()))
        assert [row[1:2] + row[3:6] for row in rows_written[1:]] == [
            ["3", "c2", "relabel", "'=c0"],
            ["60", "c2", "remove", ""],
        ]
        assert (tmp_path / "i" / "review.csv").is_file()
        assert index.get({"id": 3})[0][0].label == "c2"  # nothing but the file has changed
        assert index.verify() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"item": "n1", "decision": "burn"}, 422),
        ({"item": "gone", "decision": "keep"}, 404),
        ({"item": "n1", "decision": "relabel", "new_label": " "}, 400),
        ({"item": "n1", "decision": "keep", "path": "/etc/passwd"}, 422),
    ],
)
def test_decisions_that_make_no_sense(asked, vectors, body: dict[str, str], status: int) -> None:
    with asked(vectors) as client:
        reply = client.post("/review", json=body)
        assert reply.status_code == status
        assert reply.json()["error"]
        assert not (vectors.path / "review.csv").exists()


def test_a_public_server_takes_no_decisions(asked, vectors) -> None:
    with asked(vectors, public=True) as client:
        assert client.post("/review", json={"item": "n1", "decision": "keep"}).status_code == 403
        assert client.get("/review.csv").status_code == 403


def test_reasons_are_those_of_the_library(asked, vectors) -> None:
    items, rows = vectors.get()
    ids, labels = [item.id for item in items], [item.label for item in items]
    with asked(vectors) as client:
        hits = client.post("/search?k=5", json={"item": "n7"}).json()["hits"]
        why = client.get("/why", params={"item": "n7", "hit": hits[3]["id"]}).json()
        expected = explain_pair(
            rows[ids.index("n7")],
            ids.index(hits[3]["id"]),
            embeddings=rows,
            ids=ids,
            labels=labels,
            centres=class_centres(rows, labels, "cosine"),
            query_place=ids.index("n7"),
        )
        assert (why["rank"], why["similarity"]) == (4, hits[3]["similarity"])
        assert [(entry["label"], entry["items"], entry["best"]) for entry in why["classes"]] == list(expected.classes)
        assert [(entry["label"], entry["similarity"]) for entry in why["centres"]] == list(expected.centres)
        assert "were imported" in why["loss"]["unknown"]
        assert client.get("/why", params={"hit": "n1"}).status_code == 422
        assert client.get("/why", params={"item": "n1", "hit": "gone"}).status_code == 404
        assert client.get("/why", params={"upload": "gone", "hit": "n1"}).status_code == 404


def test_reasons_for_an_uploaded_picture(asked, pictures, photos) -> None:
    with asked(pictures) as client:
        content = (photos / "a" / "1.png").read_bytes()
        reply = client.post("/search?k=3", content=content, headers={"Content-Type": "image/png"}).json()
        why = client.get("/why", params={"upload": reply["upload"], "hit": reply["hits"][0]["id"]}).json()
        assert (why["rank"], why["items"]) == (1, 3)
        assert why["similarity"] == pytest.approx(reply["hits"][0]["similarity"], abs=1e-6)
        assert "does not name the loss" in why["loss"]["unknown"]


def test_reasons_for_an_upload_end_with_its_model(asked, pictures, photos, tmp_path) -> None:
    other = Embedder("convnet", dim=pictures.dim, options=dict(pictures.embedder().options))
    with asked(pictures) as client:
        content = (photos / "a" / "1.png").read_bytes()
        reply = client.post("/search?k=3", content=content, headers={"Content-Type": "image/png"}).json()
        pictures.reembed(other)
        client.app.state.served.move_on()
        why = client.get("/why", params={"upload": reply["upload"], "hit": reply["hits"][0]["id"]})
        assert (why.status_code, why.json()["error"]) == (409, "The model of the index has changed; search again.")


def test_items_without_a_label_contradict_nobody(asked, tmp_path) -> None:
    labels = ["wren", None, None, None, "auk"]
    with Index.of_vectors(tmp_path / "i", np.eye(3)[[0, 0, 1, 1, 2]], labels=labels) as index, asked(index) as client:
        groups = patiently(client, "/inspect/duplicates")["entries"]
        assert [(len(group["items"]), group["labels"]) for group in groups] == [(2, ["wren"]), (2, [])]


def test_the_next_case_that_waits(asked, tmp_path) -> None:
    rows = np.repeat(np.eye(4), 3, axis=0)
    with Index.of_vectors(tmp_path / "i", rows) as index, asked(index) as client:

        def waiting() -> int | None:
            return patiently(client, "/inspect/duplicates", limit=1)["next_undecided"]

        assert waiting() == 1
        client.post("/review", json={"item": 3, "decision": "remove"})
        assert waiting() == 1  # two of the three may still be one too many
        client.post("/review", json={"item": 4, "decision": "remove"})
        assert waiting() == 2
        for item in (6, 7, 9, 10):
            client.post("/review", json={"item": item, "decision": "remove"})
        assert waiting() is None


def test_every_route_is_described_with_what_it_sends(asked, vectors) -> None:
    with asked(vectors) as client:
        described = client.get("/openapi.json").json()
    models = described["components"]["schemas"]
    for path, verbs in described["paths"].items():
        for verb, operation in verbs.items():
            for status, reply in operation["responses"].items():
                schema = reply.get("content", {}).get("application/json", {}).get("schema")
                if schema is not None:
                    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
                    assert models.get(name, {}).get("properties"), (verb, path, status, schema)
    for path in ("/map/points", "/map/mask"):
        sent = described["paths"][path]["get"]["responses"]["200"]["content"]
        assert sent == {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    waiting = described["paths"]["/map"]["get"]["responses"]["202"]["content"]["application/json"]["schema"]
    assert waiting == {"$ref": "#/components/schemas/WorkingReply"}


def test_replies_are_what_their_models_say(asked, vectors) -> None:
    with asked(vectors) as client:
        client.post("/review", json={"item": "n1", "decision": "keep"})
        client.post("/review", json={"item": "n2", "decision": "relabel", "new_label": "c9"})
        replies = {
            page_reply_models.MapReply: patiently(client, "/map"),
            page_reply_models.MapIdsReply: client.get("/map/ids").json(),
            page_reply_models.MapPlaceReply: client.get("/map/place?item=n3").json(),
            page_reply_models.ConfusedReply: patiently(client, "/inspect/confused"),
            page_reply_models.MislabelledReply: patiently(client, "/inspect/mislabelled"),
            page_reply_models.DuplicatesReply: patiently(client, "/inspect/duplicates", threshold=0.5),
            page_reply_models.WhyReply: client.get("/why", params={"item": "n1", "hit": "n2"}).json(),
        }
    for model, reply in replies.items():
        assert model.model_validate(reply).model_dump(exclude_unset=True) == reply
    assert replies[page_reply_models.DuplicatesReply]["entries"]
    shown = replies[page_reply_models.ConfusedReply]["entries"][0]["examples"][0]["item"]
    assert set(shown) == {"id", "path", "label", "metadata", "source", "stamp", "hash", "image"}
    items = [item for group in replies[page_reply_models.DuplicatesReply]["entries"] for item in group["items"]]
    assert [item["review"] for item in items if item["id"] == "n2"] == [{"decision": "relabel", "new_label": "c9"}]
    assert not [item for item in items if item["id"] == "n3" and "review" in item]
