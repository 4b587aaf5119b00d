"""The requests of clients and followers: a file for each request."""
