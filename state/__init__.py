"""Facts, and where they are kept: one module a concept, one owner a table."""
