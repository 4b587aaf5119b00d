from typing import final

@final
class TopicRows: ...
