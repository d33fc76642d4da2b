"""Drawing primitives: SVG figures, HTML escaping and tables, the word map."""
