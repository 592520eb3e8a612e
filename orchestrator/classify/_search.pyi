from typing_extensions import Buffer

def groups(records: Buffer, size: int, octets: int, /) -> tuple[bytes, bytes]: ...

class Index:
    def __init__(
        self,
        masks: Buffer,
        lowest: Buffer,
        shape_of: Buffer,
        keys: Buffer,
        starts: Buffer,
        listed: Buffer,
        rows: Buffer,
        address_starts: Buffer,
        addresses: Buffer,
        port_starts: Buffer,
        ports: Buffer,
        sets: Buffer,
        /,
    ) -> None: ...
    def first(self, packets: Buffer, out: Buffer, /) -> None: ...
