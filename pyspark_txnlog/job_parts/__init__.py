"""Parts of `pyspark_txnlog.job`: reading, writing and accounting."""
