"""The scatter pattern: elements combined by an index, as segments, bags, bins and experts are."""
