"""How answers look: words, tables and lines for people, one spelling of JSON for programs."""

PIPE_WIDTH = 200
"""Of tables that are printed into a pipe, where COLUMNS says nothing: no line of them folds."""
