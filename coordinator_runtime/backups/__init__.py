"""Backups: copies of a store as of one version that was durable, each a directory of its own, and the way back.

```
<backup directory>/20261123T045512345Z/        a backup; its name is the moment in UTC
    manifest.json                              what it is: store, line, version, and every file with size and checksum
    manifest.json.sha256                       checksum of the manifest, as `sha256sum -c` takes it
    store/, segments/, durable_mark            the files, named as in the directory of a server
<backup directory>/20261123T050012345Z.partial/   one that is being made, or was cut short: nobody shows or restores it
<backup directory>/.lock                       held by whoever makes or removes backups here
```
A backup becomes one by a rename, after everything in it is on disk. Each is whole: files that an older one has already
are linked, not copied, so that removing one backup harms no other, and a backup every minute costs what was written in
that minute. On the file system of the store, its own files are linked. `manifest.py` says what is in a backup,
`creation.py` makes one, `shelf.py` lists and removes, `verification.py` reads every byte, `restoration.py` makes a
server's directory of one.

A link protects against programs that delete, not against a disk that fails or a bit that flips, which a link shares
with its file. So keep backups on another disk; `is_independent` makes one that shares nothing.
"""

from __future__ import annotations

from coordinator_runtime.backups.creation import create_backup as create_backup
from coordinator_runtime.backups.creation import create_backup_of_stopped as create_backup_of_stopped
from coordinator_runtime.backups.files import BackupRefused as BackupRefused
from coordinator_runtime.backups.manifest import Manifest as Manifest
from coordinator_runtime.backups.restoration import Restored as Restored
from coordinator_runtime.backups.restoration import restore as restore
from coordinator_runtime.backups.shelf import KeptBackup as KeptBackup
from coordinator_runtime.backups.shelf import backups_in as backups_in
from coordinator_runtime.backups.shelf import prunable as prunable
from coordinator_runtime.backups.shelf import prune as prune
from coordinator_runtime.backups.verification import verify_backup as verify_backup
