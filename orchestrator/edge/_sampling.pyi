from typing_extensions import Buffer

def sample(
    rows: Buffer, words: int, bases: Buffer, width: int, bits: int, seed: int, first: int, count: int, /
) -> tuple[int, int]: ...
