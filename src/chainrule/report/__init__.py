"""One self-contained HTML page from results and figures."""
