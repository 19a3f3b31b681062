"""The pruning encoder: windows in batches of like length, gates that drop or pool word pieces."""
