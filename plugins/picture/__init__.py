"""What an operator sees of a quorum now, Kafka's or ours: one picture, which ``kraftcore top`` and the dashboard draw.

===============  ======================================================================================================
``picture``      the parts below as one JSON value
``quorum``       what each controller answers, who leads, who lags, and that in sentences
``cluster``      brokers, topics and partitions in trouble, kept up to date record by record
``words``        records of the metadata log as events in words
``commits``      how much is committed, and how fast, as an observer sees it
``groups``       how far consumer groups are behind
``watching``     asks and observes a quorum on trio, and feeds the picture; all others know no task, socket or clock
===============  ======================================================================================================
"""

from kraftcore.namespace import listing
from kraftcore.plugins.picture.picture import Picture
from kraftcore.plugins.picture.watching import Carrier, Watching, over

__all__ = ["Carrier", "Picture", "Watching", "over"]
__dir__ = listing(__all__)
