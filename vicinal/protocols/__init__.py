"""Protocols: how a dataset is divided, trained on, scored and written down."""

from vicinal.results.record import Record, read_records, trial_folder, write_record
from vicinal.protocols.run import run_trial
from vicinal.protocols.trial import Trial, folds_of

__all__ = ["Record", "Trial", "folds_of", "read_records", "run_trial", "trial_folder", "write_record"]
