"""Nodes of replicated logs, three processes a cluster: kraftcore's and its peers', and what is needed to run them."""
