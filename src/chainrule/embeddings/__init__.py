"""Static word vectors: training, storage, similarity queries and file formats."""
