from typing_extensions import Buffer

def records(
    data: Buffer, place: int, swapped: bool, most: int, link: int, /
) -> tuple[int, bytes, bytes, bytes, bytes]: ...
def blocks(
    data: Buffer, place: int, swapped: bool, most: int, links: Buffer, /
) -> tuple[int, bytes, bytes, bytes, bytes]: ...
