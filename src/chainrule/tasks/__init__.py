"""Task models: text classification, sequence tagging, translation and pretrained encoders."""
