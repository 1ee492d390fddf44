"""Reports: one self-contained HTML page about a comparison, and a Markdown version of it."""

from vicinal.report.blocks import Chapter, Prose, Table
from vicinal.report.page import write_report

__all__ = ["Chapter", "Prose", "Table", "write_report"]
