"""Answers as people and programs read them: tables, lines, JSON."""
