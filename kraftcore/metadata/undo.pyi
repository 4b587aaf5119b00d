from typing import final

@final
class UndoLog: ...
