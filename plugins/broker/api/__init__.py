"""What clients and followers ask: a file for each request."""
