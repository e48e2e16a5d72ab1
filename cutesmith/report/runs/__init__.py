"""What people read of a run: the page, Markdown, CSV, the leaderboard."""
