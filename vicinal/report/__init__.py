"""Reports: one self-contained page about a comparison, and its twin in Markdown."""

from vicinal.report.page import write_report

__all__ = ["write_report"]
