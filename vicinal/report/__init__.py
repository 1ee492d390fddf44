"""Reports: one self-contained page about a comparison, and its twin in Markdown."""

from vicinal.report.blocks import Chapter, Prose, Table
from vicinal.report.page import write_report

__all__ = ["Chapter", "Prose", "Table", "write_report"]
