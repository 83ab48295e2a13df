"""From the files of `catalog/` to an immutable release, and from a release to a snapshot."""
