"""Backups: copies of a store as of one durable version, each in its own directory, and their restoration.

```
<backup directory>/20261123T045512345Z/        a backup; its name is the moment in UTC
    manifest.json                              store, incarnation, version, and every file with size and checksum
    manifest.json.sha256                       checksum of the manifest, as `sha256sum -c` takes it
    store/, segments/, durable_mark            the files, named as in the directory of a server
<backup directory>/20261123T050012345Z.partial/   one in progress or cut short: never shown, never restored
<backup directory>/.lock                       held by the process that makes or removes backups here
```
A backup becomes valid by a rename, after everything in it is on disk. Each is complete: files that an older backup
already has are linked, not copied. So removing one backup harms no other, and a backup every minute costs only the
writes of that minute. On the file system of the store, the store's own files are linked. `manifest.py` describes a
backup, `creation.py` makes one, and `shelf.py` lists and removes them. `verification.py` reads every byte, and
`restoration.py` makes a server's directory from one.

A link protects against programs that delete, but not against a failed disk or a flipped bit, which a link shares with
its file. So keep backups on another disk; `is_independent` makes one that shares nothing.
"""

from __future__ import annotations

from coordinator_runtime.backups.creation import create_backup as create_backup
from coordinator_runtime.backups.creation import create_backup_of_stopped as create_backup_of_stopped
from coordinator_runtime.backups.files import BackupRefused as BackupRefused
from coordinator_runtime.backups.manifest import Manifest as Manifest
from coordinator_runtime.backups.restoration import Restored as Restored
from coordinator_runtime.backups.restoration import restore as restore
from coordinator_runtime.backups.stored import StoredBackup as StoredBackup
from coordinator_runtime.backups.stored import backups_in as backups_in
from coordinator_runtime.backups.stored import prunable as prunable
from coordinator_runtime.backups.stored import prune as prune
from coordinator_runtime.backups.verification import verify_backup as verify_backup
