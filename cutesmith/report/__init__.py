"""What people look at: report.html and plots."""
