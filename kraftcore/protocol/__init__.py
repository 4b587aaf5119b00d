"""Every message and record as data; error codes; feature levels."""
