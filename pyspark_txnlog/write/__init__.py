"""Write side of the data source: the sink and the tasks that write its batches."""
