"""Utilities: files, reading, code by name, text, progress, secrets, the machine."""
