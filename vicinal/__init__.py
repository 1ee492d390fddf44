"""vicinal: embeddings in which neighbours mean something."""
