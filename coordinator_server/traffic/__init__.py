"""Traffic control that every front shares: admission, fairness, limits of answers, quotas."""
