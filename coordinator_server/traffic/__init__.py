"""Traffic control that every front shares: admission, fairness, room for answers, quotas."""
