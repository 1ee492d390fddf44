"""`vicinal evaluate` from the shell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import DataError, InputError, MissingExtra, NotFinite, UnknownName
from vicinal.evaluation import Bootstrap, GroundTruth, Neighbourhood, Scores, evaluate
from vicinal.evaluation.files import read_labels, read_table
from vicinal.index.exchange import export_items
from vicinal.index.item import Header, Item
from vicinal.neighbours import learn_whitening

pytestmark = pytest.mark.unit


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 5
    return (rng.standard_normal((5, 6))[labels] + rng.standard_normal((40, 6))).astype(np.float32), labels


def run(*arguments):
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def write_parquet(path, points, labels, **more):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"embedding": list(points), "label": labels} | more
    parquet.write_table(pyarrow.table(columns), path)


def test_npz_gives_table_json_and_figure(tmp_path, data):
    points, labels = data
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    result = run(tmp_path / "e.npz", "--out", tmp_path / "new" / "s.json", "--plot", tmp_path / "s.svg", "--all")
    assert result.exit_code == 0
    expected = evaluate(points, labels, also=["ranking", "clustering", "geometry"])
    assert str(expected) in result.stdout
    brief = run(tmp_path / "e.npz").stdout
    four = ["P@1", "R@8", "MAP@R", "NMI"]
    assert [line.split()[0] for line in brief.splitlines() if re.match(r"\S+ +\d\.\d{4}", line)] == four
    assert all(re.search(rf"^{name}: ", brief, re.MULTILINE) for name in four)
    more = run(tmp_path / "e.npz", "--k", "1,2", "--full-ranking", "--verify").stdout
    assert all(re.search(rf"^{name} +\d", more, re.MULTILINE) for name in ("R@1", "R@2", "nDCG", "AUC", "EER"))
    record = Scores.from_json((tmp_path / "new" / "s.json").read_text(encoding="utf-8"))
    assert dict(record.overall) == dict(expected.overall)
    assert (tmp_path / "s.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_every_way_to_give_the_same_items(tmp_path, data):
    points, labels = data
    np.save(tmp_path / "e.npy", points)
    np.save(tmp_path / "l.npy", labels)
    (tmp_path / "l.txt").write_text("\n".join(map(str, labels)) + "\n")
    (tmp_path / "l.csv").write_text("path,label\n" + "".join(f"{i}.jpg,{label}\n" for i, label in enumerate(labels)))
    (tmp_path / "one.csv").write_text("".join(f"{label}\n" for label in labels))
    write_parquet(tmp_path / "e.parquet", points, labels)
    quick = ["--no-clustering", "--no-geometry", "--no-progress", "--all"]
    tables = [
        run(tmp_path / "e.npy", "--labels", tmp_path / name, *quick) for name in ("l.npy", "l.txt", "l.csv", "one.csv")
    ]
    tables.append(run(tmp_path / "e.parquet", *quick))
    assert {table.stdout for table in tables} == {str(evaluate(points, labels)) + "\n"}
    assert {table.stderr for table in tables} == {""}


def test_a_file_says_how_its_embeddings_are_compared(tmp_path, data):
    points, labels = data
    items = [Item(place, label=int(label)) for place, label in enumerate(labels)]
    for name in ("e.npz", "e.parquet"):
        export_items(tmp_path / name, Header(6, "euclidean", "made by hand"), items, points)
    quick = ["--no-clustering", "--no-geometry", "--no-progress", "--all"]
    by_file, by_flag = (str(evaluate(points, labels, distance=name)) + "\n" for name in ("euclidean", "cosine"))
    assert by_file != by_flag
    for name in ("e.npz", "e.parquet"):
        assert (run(tmp_path / name, *quick).stdout, run(tmp_path / name, *quick).stderr) == (by_file, "")
        other = run(tmp_path / name, *quick, "--distance", "cosine")
        assert other.stdout == by_flag
        assert (
            other.stderr == f"Note: {tmp_path / name} names the distance euclidean; --distance cosine overrides it.\n"
        )
    export_items(tmp_path / "gallery.npz", Header(6, "cosine", "made by hand"), items, points)
    with pytest.raises(InputError, match=r"different distances .*e.npz: euclidean.*choose one with --distance"):
        run(tmp_path / "e.npz", "--gallery", tmp_path / "gallery.npz")
    np.savez(tmp_path / "odd.npz", embeddings=points, labels=labels, distance=np.array("manhattan"))
    with pytest.raises(DataError, match="unknown distance 'manhattan'"):
        run(tmp_path / "odd.npz")


def test_options_reach_the_evaluation(tmp_path, data):
    points, labels = data
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    options = ["--distance", "euclidean", "--k", "1,3", "--draws", 50, "--confidence", 0.8, "--seed", 3]
    result = run(tmp_path / "e.npz", *options, "--no-full-ranking", "--no-clustering", "--no-geometry", "--all")
    expected = evaluate(
        points,
        labels,
        distance="euclidean",
        k=[1, 3],
        also=[],
        intervals=Bootstrap(draws=50, confidence=0.8, seed=3),
    )
    assert result.stdout == str(expected) + "\n"
    assert "80 % interval" in result.stdout


def test_queries_in_a_gallery_with_sequences(tmp_path, data):
    points, labels = data
    sequences = np.arange(40) % 7
    np.savez(tmp_path / "q.npz", embeddings=points[:15], labels=labels[:15], sequences=sequences[:15])
    write_parquet(tmp_path / "g.parquet", points[15:], labels[15:], sequence=sequences[15:])
    result = run(tmp_path / "q.npz", "--gallery", tmp_path / "g.parquet", "--no-clustering", "--no-geometry", "--all")
    expected = evaluate(
        points[:15],
        GroundTruth(labels[:15], sequences=sequences[:15]),
        gallery=(points[15:], GroundTruth(labels[15:], sequences=sequences[15:])),
    )
    assert result.stdout == str(expected) + "\n"


def test_class_names_of_embed_are_used(tmp_path, data):
    points, labels = data
    names = np.array(["ant", "bee", "cat", "dog", "elk"])
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels, class_names=names)
    assert read_table(tmp_path / "e.npz").labels.tolist() == names[labels].tolist()
    np.savez(tmp_path / "bad.npz", embeddings=points, labels=labels + 1, class_names=names)
    with pytest.raises(DataError, match="indices into the 5 class_names"):
        read_table(tmp_path / "bad.npz")


def test_string_labels_of_parquet(tmp_path, data):
    points, labels = data
    write_parquet(tmp_path / "e.parquet", points.astype(np.float64), [f"bird {label}" for label in labels])
    table = read_table(tmp_path / "e.parquet")
    assert table.labels[1] == "bird 1"
    assert np.array_equal(table.embeddings, points)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (["--k", "1,b"], InputError, "--k must be integers.*got '1,b'"),
        (["--plot", "scores.gif2"], InputError, r"--plot must end in .*\.png.*got scores\.gif2"),
        (["--gallery-labels", "l.npy"], InputError, "--gallery-labels needs --gallery"),
        (["--gallery", "none.npz"], DataError, r"none\.npz does not exist"),
        (["--labels", "none.txt"], DataError, r"none\.txt does not exist"),
    ],
)
def test_wrong_options_are_explained(tmp_path, data, options, error, words):
    points, labels = data
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    with pytest.raises(error, match=words):
        run(tmp_path / "e.npz", *options)


def test_typer_refuses_unknown_metrics_and_shows_the_choices(tmp_path):
    result = run(tmp_path / "e.npz", "--distance", "manhattan")
    assert result.exit_code == 2
    assert "euclidean" in re.sub(r"\x1b\[[0-9;]*m", "", result.stderr)


def test_files_that_cannot_be_used(tmp_path, data):
    points, labels = data
    (tmp_path / "e.pt").touch()
    with pytest.raises(UnknownName, match=r"Unknown kind of embedding file '\.pt'"):
        read_table(tmp_path / "e.pt")
    (tmp_path / "l.json").touch()
    with pytest.raises(UnknownName, match=r"Unknown kind of label file '\.json'"):
        read_labels(tmp_path / "l.json")
    np.savez(tmp_path / "x.npz", X=points, y=labels)
    with pytest.raises(DataError, match=r"(?s)no array 'embeddings'.*it contains: X, y"):
        read_table(tmp_path / "x.npz")
    np.savez(tmp_path / "e.npz", embeddings=points)
    with pytest.raises(DataError, match=r"(?s)has no labels.*--labels"):
        read_table(tmp_path / "e.npz")
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a file of arrays"):
        read_table(tmp_path / "broken.npz")
    np.savez(tmp_path / "nan.npz", embeddings=points * np.nan, labels=labels)
    with pytest.raises(NotFinite, match="40 of 40 rows"):
        run(tmp_path / "nan.npz")
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="column called 'label'"):
        read_labels(tmp_path / "two.csv")
    (tmp_path / "short.csv").write_text("path,label\nx.jpg,1\ny.jpg\n")
    with pytest.raises(DataError, match=r"(?s)no label.*line 2"):
        read_labels(tmp_path / "short.csv")


def test_a_pickle_in_disguise_is_not_opened(tmp_path):
    np.save(tmp_path / "e.npy", np.array([{"evil": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="holds object"):
        read_labels(tmp_path / "e.npy")
    np.savez(tmp_path / "e.npz", embeddings=np.eye(2), labels=np.array([{}, {}], dtype=object))
    with pytest.raises(DataError, match="holds object"):
        read_table(tmp_path / "e.npz")


def test_parquet_that_cannot_be_used(tmp_path, monkeypatch):
    write_parquet(tmp_path / "ragged.parquet", [[1.0], [1.0, 2.0]], [0, 1])
    with pytest.raises(DataError, match="differ in length"):
        read_table(tmp_path / "ragged.parquet")
    write_parquet(tmp_path / "null.parquet", [[1.0], [1.0]], [0, None])
    with pytest.raises(DataError, match="1 entries of the column 'label' are missing"):
        read_table(tmp_path / "null.parquet")
    write_parquet(tmp_path / "flat.parquet", [1.0, 2.0], [0, 1])
    with pytest.raises(DataError, match="must hold lists of numbers, got double"):
        read_table(tmp_path / "flat.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match=r"not a table .*parquet"):
        read_table(tmp_path / "broken.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"vicinal\[parquet\]"):
        read_table(tmp_path / "flat.parquet")


def test_an_expected_error_is_one_message(tmp_path, capsys, monkeypatch):
    from vicinal.cli.main import main

    monkeypatch.setattr("sys.argv", ["vicinal", "evaluate", str(tmp_path / "none.npz")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "error:" in message
    assert "does not exist" in message
    assert "Traceback" not in message


def test_json_has_only_plain_numbers(tmp_path, data):
    points, labels = data
    np.savez(tmp_path / "e.npz", embeddings=points, labels=labels)
    run(tmp_path / "e.npz", "--out", tmp_path / "s.json", "--no-geometry", "--no-clustering")
    record = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert record["counts"]["queries"] == 40
    assert 0 <= record["overall"]["MAP@R"] <= 1


def test_better_neighbours_as_in_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    rows = (rng.normal(size=(6, 5))[labels] + 0.8 * rng.normal(size=(48, 5))).astype(np.float32)
    np.savez(tmp_path / "e.npz", embeddings=rows, labels=labels)
    np.savez(tmp_path / "train.npz", embeddings=rows[:20])
    plain = ["e.npz", "--no-geometry", "--no-clustering", "--draws", "0", "--json", "--no-progress"]

    def told(*flags: str) -> dict[str, float]:
        result = run(*(str(tmp_path / word) if word.endswith(".npz") else word for word in (*plain, *flags)))
        return json.loads(result.output)["overall"]

    whitening = learn_whitening(rows[:20])
    assert (
        told("--expand", "3", "--augment", "2")
        == evaluate(rows, labels, neighbours=Neighbourhood(expand=3, augment=2)).overall
    )
    assert told("--rerank") == evaluate(rows, labels, neighbours=Neighbourhood(rerank=True)).overall
    assert (
        told("--whiten", "train.npz") == evaluate(rows, labels, neighbours=Neighbourhood(whitening=whitening)).overall
    )


def test_sizes_are_told_and_drawn(tmp_path: Path, data) -> None:
    np.savez(tmp_path / "e.npz", embeddings=data[0], labels=data[1])
    result = run(tmp_path / "e.npz", "--sizes", tmp_path / "sizes.png", "--no-progress", "--draws", "0")
    assert "bits, rescored by int8" in result.output
    assert (tmp_path / "sizes.png").is_file()
