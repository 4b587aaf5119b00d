"""Requests and responses, one module an api: ``kraftcore.protocol.messages.fetch`` has FetchRequest and FetchResponse."""
