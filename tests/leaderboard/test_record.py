import multiprocessing
import os

import pytest

from vicinal._util.files import sealed
from vicinal.errors import DataError, InputError
from vicinal.runs import Journal, Record, read_journals
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit
RECIPE = Recipe(data="digits", dim=8).model_dump(mode="json")


def record(key="a", name="triplet", status="done", value=0.5, **changes):
    return Record(
        key=key,
        name=name,
        status=status,
        error="It broke." if status == "failed" else None,
        data="d",
        split="s",
        recipe=RECIPE,
        test={"MAP@R": value} if status == "done" else {},
        **changes,
    )


def keys(*folders):
    return [run.record.key for run in read_journals(folders)]


def test_what_is_written_is_read_back(tmp_path):
    one = record(per_class={"MAP@R": (0.5, None)}, classes=("x", "y"), demands=("1 item per class",))
    Journal(tmp_path).append(one)
    assert Journal(tmp_path).records() == [one]
    assert one.experiment == "digits, fixed-validation, convnet-8, seed 0"


def test_a_torn_line_is_passed_over_and_the_next_record_starts_a_line_of_its_own(tmp_path):
    Journal(tmp_path).append(record("a"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(record("b").model_dump_json()[:40].encode())
    Journal(tmp_path).append(record("c"))
    assert keys(tmp_path) == ["a", "c"]


def test_a_flipped_bit_anywhere_is_noticed(tmp_path):
    Journal(tmp_path).append(record("a"))
    line = (tmp_path / "journal.jsonl").read_bytes()
    for place in [*range(0, len(line) - 40, 37), *range(len(line) - 40, len(line) - 1)]:
        for bit in (0, 5):
            spoilt = bytearray(line)
            spoilt[place] ^= 1 << bit
            if b"\n" in spoilt[:-1] or b"\r" in spoilt:
                continue  # two lines, of which the second is damaged or torn
            (tmp_path / "journal.jsonl").write_bytes(bytes(spoilt))
            with pytest.raises(DataError, match="Line 1"):
                read_journals([tmp_path])


def test_a_line_without_a_checksum_is_refused(tmp_path):
    (tmp_path / "journal.jsonl").write_text(record("a").model_dump_json() + "\n")
    with pytest.raises(DataError, match=r"Line 1 .* is corrupted"):
        read_journals([tmp_path])


def test_journals_of_two_machines_merge_and_done_wins_over_failed(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    Journal(here).append(record("a", status="failed"))
    Journal(here).append(record("b"))
    Journal(there).append(record("a", value=0.9))
    for order in ([here, there], [there, here]):
        merged = {run.record.key: run.record for run in read_journals(order)}
        assert set(merged) == {"a", "b"}
        assert merged["a"].test["MAP@R"] == 0.9


def test_a_failed_run_that_was_run_again_counts_as_done(tmp_path):
    Journal(tmp_path).append(record("a", status="failed"))
    Journal(tmp_path).append(record("a"))
    assert [one.status for one in Journal(tmp_path).records()] == ["done"]


def _write_many(folder, first):
    for number in range(first, first + 25):
        Journal(folder).append(record(str(number)))


def test_processes_write_side_by_side(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_many, args=(tmp_path, 25 * i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(keys(tmp_path)) == set(map(str, range(100)))


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    Journal(tmp_path).append(record("a"))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left.*\n?.*repeat the command"):
        Journal(tmp_path).append(record("b"))
    with pytest.raises(DataError, match="No space left"):
        Journal(tmp_path / "new").append(record("b"))
    monkeypatch.undo()
    assert keys(tmp_path) == ["a"]
    assert not (tmp_path / "new" / "journal.jsonl").exists()


def test_a_folder_without_a_journal_says_so(tmp_path):
    with pytest.raises(InputError, match="holds no comparison"):
        read_journals([tmp_path])
    assert Journal(tmp_path).records() == []


@pytest.mark.parametrize("version", [1, 2, 9])
def test_a_record_of_another_version_is_refused(tmp_path, version):
    text = record().model_dump_json().replace('"version":4', f'"version":{version}')
    (tmp_path / "journal.jsonl").write_bytes(sealed(text.encode()) + b"\n")
    with pytest.raises(DataError, match=f"Line 1 .*: it has version {version}, and this vicinal reads version 4"):
        read_journals([tmp_path])
