"""Requests and responses, one module an api: ``messages.fetch`` has FetchRequest and FetchResponse."""
