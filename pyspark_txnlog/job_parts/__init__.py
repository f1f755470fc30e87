"""Parts of `pyspark_txnlog.job`: what it reads, where it writes, its account."""
