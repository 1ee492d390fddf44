"""Protocols: how a dataset is divided, trained on, scored and written down."""

from vicinal.protocols.record import Record, best_first, read_records, trial_folder, write_record

__all__ = ["Record", "best_first", "read_records", "trial_folder", "write_record"]
