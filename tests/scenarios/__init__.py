"""Stories of transactions, as transcripts. `harness/script.py` has the language."""
