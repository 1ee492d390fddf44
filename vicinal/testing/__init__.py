"""Checks for custom extensions: test that a store or a loss fulfils its contract."""

from vicinal.testing.objective_contract import check_objective
from vicinal.testing.store_contract import check_store, naive_search

__all__ = ["check_objective", "check_store", "naive_search"]
