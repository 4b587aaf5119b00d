"""The file operations everything on disk goes through: the operating system's (`files`), or a simulated disk's."""
