"""One module a verb, each with `main(argv) -> int`."""
