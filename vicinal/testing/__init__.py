"""For those who write parts of their own: what a store or a loss has to keep to, tried out."""

from vicinal.testing.objective_contract import check_objective
from vicinal.testing.store_contract import check_store, naive_search

__all__ = ["check_objective", "check_store", "naive_search"]
