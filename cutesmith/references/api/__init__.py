"""The `api-*.md` pages: generated from the installed DSL, so that no name in them can be invented or stale."""

from cutesmith.references.api.pages import PAGES, render_pages

__all__ = ["PAGES", "render_pages"]
