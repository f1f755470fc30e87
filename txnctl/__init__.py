"""Command line of the product: run a server, ask a running one through the SDK, or inspect a stopped store.

`entry` is the installed program, and `cli` the tree of commands. Each subject has a module in `commands`. Most
commands are of one of three kinds:

- It asks a running server: `commands/remote` connects, and the SDK's clients do the rest.
- It reads the directory of a stopped server: `commands/stopped` opens it without changing it. `stopped` reads the rows
  as they are stored. It trusts none of the code that wrote them, because it checks that code.
- It runs a server: `commands/serve` reads the settings and calls `coordinator_server.process.run`.

A command makes rows of plain values, and `output` prints them: as a table for people, as JSON or YAML for programs. It
fails by `CommandFailed`, with a message for the person at the terminal and an exit status. Options that several
commands share are in `commands/options`.

What all commands have in common is done to the command line or to the tree of commands, and not in each of them.
`commands/placing` lets options stand before and behind a command, `commands/completing` completes names from the
server, and `commands/watching` has `--watch`. `tables` lays tables out, `live_screen` draws in place, and `top` is the
live view. `page` serves the page for the browser, as a client of the SDK alone.

`txnctl --help` loads neither the SDK nor the store. So a command imports what it needs inside its function, or by
`commands/late`.

Reading order: `cli`, `output`, `commands/options`, `commands/topic` (a command of the first kind), `commands/remote`,
`commands/store` (one of the second), `stopped/stored`, `stopped/store_verify`, `commands/serve`, `machine`.
"""
