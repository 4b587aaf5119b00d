"""Error messages of answers with many of them."""

from __future__ import annotations

from kraftcore.protocol.error_text_budget import TEXTS_MAX, ErrorTexts


def test_together_they_are_bounded():
    texts = ErrorTexts()
    taken = [texts.take("x" * 30_000) for _ in range(100)]
    assert sum(len(text) for text in taken if text is not None) == TEXTS_MAX // 30_000 * 30_000
    assert texts.take(None) is None


def test_each_fits_a_string_of_the_protocol():
    texts = ErrorTexts()
    assert texts.take("x" * 32_767) == "x" * 32_767
    assert texts.take("x" * 32_768) is None
    assert texts.take("\u00e9" * 20_000) is None
