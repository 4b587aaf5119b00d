"""Records of the metadata log, one module each."""
