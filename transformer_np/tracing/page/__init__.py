"""The page to step through: one HTML file, made of a trace."""

from .page import notebook_view, page_of, write_page

__all__ = ["notebook_view", "page_of", "write_page"]
