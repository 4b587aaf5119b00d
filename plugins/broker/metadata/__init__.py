"""What the metadata of the cluster means for a broker.

======================  ================================================================================================
``cache``               what clients are told of the cluster
``local_changes``       what a change of the metadata image has this broker do: delete, lead, follow
``carrying_out``        does so, on the broker's logs
``topic_settings``      what is set for each topic's partitions
======================  ================================================================================================
"""
