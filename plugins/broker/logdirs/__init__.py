"""What a broker keeps on disk: log directories, the partitions' folders in them, checkpoint files in Kafka's formats.

===================  =================================================================================================
``names``            what a folder in a log directory is called, and why
``checkpoint``       offset checkpoint files: an offset for each partition
``clean_shutdown``   the file that a stop in order leaves
``stored_offsets``   what such files say, and what is stored next
``topic_ids``        which topics the folders were made for, in one file
``owner``            whose a log directory is
``directory``        one log directory: its logs, its checkpoints
``logdirs``          all of them together
===================  =================================================================================================

Source: Kafka 3.9.1, LogManager, OffsetCheckpointFile, PartitionMetadataFile; KIP-516.
"""

from kraftcore.plugins.broker.logdirs.directory import HostedLog
from kraftcore.plugins.broker.logdirs.logdirs import LogDirs

__all__ = ["HostedLog", "LogDirs"]
