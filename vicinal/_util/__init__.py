"""Utilities without a concept of their own: files, reading, code by name, text, progress, secrets, the machine."""
