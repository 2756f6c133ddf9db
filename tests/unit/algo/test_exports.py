"""What `pacs.algo` offers."""

import pacs.algo


def test_everything_promised_is_there_and_in_order():
    assert pacs.algo.__all__ == sorted(pacs.algo.__all__)
    for name in pacs.algo.__all__:
        assert name[0].isupper() or getattr(pacs.algo, name).__module__.startswith("pacs.algo.")
