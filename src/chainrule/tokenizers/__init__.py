"""str <-> ids, over the `tokenizers` library."""
