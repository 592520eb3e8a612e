from typing_extensions import Buffer

def levels(
    boxes: Buffer,
    flags: Buffer,
    sequence: Buffer,
    rule: Buffer,
    level: Buffer,
    kind: Buffer = ...,
    classes: int = ...,
    /,
) -> None: ...
