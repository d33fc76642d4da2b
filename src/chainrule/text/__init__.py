"""Text input: corpora that can be read repeatedly, file formats, and seeded splits."""
