"""The file operations everything on disk goes through: the operating system's (`files`), or a simulated disk's."""

from kraftcore.core.disk.files import File, FileLock, Files, FileStat, OsFiles
from kraftcore.namespace import listing

__all__ = ["File", "FileLock", "FileStat", "Files", "OsFiles"]
__dir__ = listing(__all__)
