"""From a distribution to text: filters, sampling, beam search."""
