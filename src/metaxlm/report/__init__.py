"""The report of a run: tables, figures and one static page, drawn from the run folder alone."""

from metaxlm.report.page import summary_table
from metaxlm.report.stage import write_report

__all__ = ["summary_table", "write_report"]
