"""`txnctl top`: a live view of a running server in the terminal.

`facts` asks the server, `view` makes a frame of the answers that fits any terminal, `live` shows one frame after the
other and takes keys.
"""
