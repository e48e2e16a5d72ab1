"""The reference pages: read, searched, and checked (code blocks, names, links) so that none goes stale unnoticed."""
