"""`report.html`: one self-contained page on what became of a kernel."""

from cutesmith.report.page import render_report

__all__ = ["render_report"]
