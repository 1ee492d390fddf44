import multiprocessing
import os

import pytest

from vicinal.errors import DataError, InputError
from vicinal.results import Record, read_records, write_record

pytestmark = pytest.mark.unit


def record(key="a", name="triplet", status="done", value=0.5, **changes):
    return Record(
        key=key,
        name=name,
        status=status,
        error="It broke." if status == "failed" else None,
        dataset="digits",
        data="d",
        protocol="fixed-validation",
        split="s",
        seed=0,
        recipe={"backbone": "convnet", "dim": 8},
        test={"MAP@R": value} if status == "done" else {},
        **changes,
    )


def test_what_is_written_is_read_back(tmp_path):
    one = record(per_class={"MAP@R": (0.5, None)}, classes=("x", "y"), demands=("1 item per class",))
    write_record(tmp_path, one)
    assert read_records(tmp_path) == [one]
    assert one.experiment == "digits, fixed-validation, convnet-8, seed 0"


def test_a_torn_line_is_passed_over_and_the_next_record_starts_a_line_of_its_own(tmp_path):
    write_record(tmp_path, record("a"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(record("b").model_dump_json()[:40].encode())
    write_record(tmp_path, record("c"))
    assert [one.key for one in read_records(tmp_path)] == ["a", "c"]


def test_journals_of_two_machines_merge_and_done_wins_over_failed(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write_record(here, record("a", status="failed"))
    write_record(here, record("b"))
    write_record(there, record("a", value=0.9))
    for order in ([here, there], [there, here]):
        merged = {one.key: one for one in read_records(*order)}
        assert set(merged) == {"a", "b"}
        assert merged["a"].test["MAP@R"] == 0.9


def test_a_failed_trial_that_was_run_again_counts_as_done(tmp_path):
    write_record(tmp_path, record("a", status="failed"))
    write_record(tmp_path, record("a"))
    assert [one.status for one in read_records(tmp_path)] == ["done"]


def _write_many(folder, first):
    for number in range(first, first + 25):
        write_record(folder, record(str(number)))


def test_processes_write_side_by_side(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_many, args=(tmp_path, 25 * i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {one.key for one in read_records(tmp_path)} == set(map(str, range(100)))


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    write_record(tmp_path, record("a"))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left.*\n?.*same command"):
        write_record(tmp_path, record("b"))
    monkeypatch.undo()
    assert [one.key for one in read_records(tmp_path)] == ["a"]


def test_a_folder_without_a_journal_says_so(tmp_path):
    with pytest.raises(InputError, match="holds no comparison"):
        read_records(tmp_path)


def test_a_record_of_another_version_is_refused(tmp_path):
    text = record().model_dump_json().replace('"version":1', '"version":9')
    (tmp_path / "journal.jsonl").write_text(text + "\n")
    with pytest.raises(DataError, match="Line 1"):
        read_records(tmp_path)
