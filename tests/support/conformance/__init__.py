"""Parts of the wire conformance suite in tests/conformance. Independent of kraftcore: it is the black box."""
