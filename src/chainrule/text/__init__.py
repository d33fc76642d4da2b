"""str -> str: restartable readers of any text, and seeded splits."""
