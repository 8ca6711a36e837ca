"""The engine of one loaded model: families, decoding, beam search, sampling, its functions."""
