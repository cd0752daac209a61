"""The encoding path: from requests for vectors and scores to batches of one encoder."""
