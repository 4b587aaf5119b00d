"""What recipes hold, as bytes and back: MessagePack's values, or objects of a model.

A model is a class of pydantic (`BaseModel`) or msgspec (`Struct`). Its objects are kept as the plain values that the
library makes of them, so that a program without the model reads them as dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kraftcore.errors import LocalError
from kraftcore.plugins.recipes.codec import pack, unpack

Value = TypeVar("Value")


class Values(Generic[Value]):
    """How an object's values are encoded.

    Args:
        where: the object that holds them, for messages: "dict 'settings'".
        model: a class of pydantic's or msgspec's models; None: plain values.

    Raises:
        LocalError: ``model`` is neither.
    """

    def __init__(self, where: str, model: type[Value] | None = None) -> None:
        self._where = where
        self._model = model
        if model is not None:
            self._plain, self._made = _conversions(where, model)

    def pack(self, value: Value) -> bytes:
        """Encode a value.

        Raises:
            LocalError: the value is no object of the model, or MessagePack cannot hold it.
        """
        if self._model is None:
            return pack(value)
        if not isinstance(value, self._model):
            raise LocalError(f"{self._where} holds {self._model.__name__}, and {value!r} is {type(value).__name__}")
        try:
            plain = self._plain(value)
        except UnicodeDecodeError as error:  # pydantic's, whose JSON has bytes as text
            as_text = "give the model ser_json_bytes='base64' and val_json_bytes='base64'"
            raise LocalError(f"{self._where} cannot hold {value!r}, whose bytes are not UTF-8: {as_text}") from error
        except (TypeError, ValueError) as error:
            raise LocalError(f"{self._where} cannot hold {value!r}: {error}") from error
        return pack(plain)

    def unpack(self, data: bytes) -> Value:
        """Decode what ``pack`` made.

        Raises:
            LocalError: another program wrote a value of which the model cannot be made.
        """
        plain = unpack(data)
        if self._model is None:
            return plain  # type: ignore[no-any-return]
        try:
            found: Value = self._made(plain)
        except (TypeError, ValueError) as error:  # the validation errors of both libraries are ValueErrors
            raise LocalError(f"{self._where} holds a value that is no {self._model.__name__}: {error}") from error
        return found


def _conversions(where: str, model: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A model's object to plain values, and back."""
    if isinstance(model, type):
        if hasattr(model, "model_validate"):
            # As JSON has it, since a date is no MessagePack; a strict model would refuse the text of a date.
            return (
                lambda value: value.model_dump(mode="json", by_alias=True, round_trip=True),
                lambda plain: model.model_validate(plain, strict=False),
            )
        if hasattr(model, "__struct_fields__"):
            msgspec = sys.modules["msgspec"]  # the model's own library
            kept = (bytes,)
            return (
                lambda value: msgspec.to_builtins(value, builtin_types=kept),
                lambda plain: msgspec.convert(plain, model, builtin_types=kept),
            )
    raise LocalError(f"the model of {where} is {model!r}: give a class of pydantic's BaseModel or msgspec's Struct")
