"""What every workflow uses and no episode is needed for: options of activities, ids, messages, turns of a story."""
