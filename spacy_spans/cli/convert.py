def convert_cli() -> None:
    """Not written yet."""
    raise SystemExit("not written yet")
