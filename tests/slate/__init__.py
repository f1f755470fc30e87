"""The engine on object storage, on an emulator whose conditional writes are atomic."""
