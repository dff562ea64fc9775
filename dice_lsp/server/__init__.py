"""The edge that knows LSP: one file per feature, wired in app.py."""
