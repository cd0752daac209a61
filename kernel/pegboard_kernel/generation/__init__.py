"""The generation path: from a request to semantic events, the same for every API."""
