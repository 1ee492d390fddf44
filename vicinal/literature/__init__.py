"""Published results of papers: numbers, claims, and validation scores."""

from __future__ import annotations

from vicinal.literature.tables import Published, published, same_method, thesis_tables

__all__ = ["Published", "published", "same_method", "thesis_tables"]
