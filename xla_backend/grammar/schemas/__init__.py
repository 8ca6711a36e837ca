"""JSON schemas as rules of the documents that they allow."""
