"""The report in the paper's layout: its tables, figures and claims beside a run's own numbers."""

from metaxlm.report.paper.page import write_paper_report
from metaxlm.report.paper.source import PaperSource, read_paper_source

__all__ = ["PaperSource", "read_paper_source", "write_paper_report"]
