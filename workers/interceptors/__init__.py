"""What stands before workflows and activities in every worker of ours."""
