"""The file operations everything on disk goes through: the interface (`files`), the operating
system's (`os_files`), or a simulated disk's."""

from kraftcore.core.disk.files import File, FileLock, Files, FileStat
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.namespace import listing

__all__ = ["File", "FileLock", "FileStat", "Files", "OsFiles"]
__dir__ = listing(__all__)
