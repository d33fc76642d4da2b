"""Applications of sentence likelihood: reranking, spelling correction, filtering, completion and identification."""
