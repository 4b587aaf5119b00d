from typing import final

from kraftcore.core.disk.files import File, Files

@final
class OsFile(File):
    def __init__(self, *args: object, **kwargs: object) -> None: ...

class OsFiles(Files): ...
class VolatileFiles(OsFiles): ...
