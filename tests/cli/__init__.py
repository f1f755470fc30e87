"""The commands of txnctl, as a person and a script see them."""
