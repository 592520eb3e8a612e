from typing_extensions import Buffer

def levels(boxes: Buffer, flags: Buffer, sequence: Buffer, rule: Buffer, level: Buffer, /) -> None: ...
def relevel(
    atoms: Buffer,
    rule: Buffer,
    level: Buffer,
    gone: Buffer,
    gone_level: Buffer,
    first: int,
    added: int,
    most: int,
    /,
) -> bool: ...
