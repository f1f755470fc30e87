"""Consumer groups and the offsets they commit, inside transactions or outside."""
