class Graphs: ...


def bucket(n: int) -> int:
    return n
