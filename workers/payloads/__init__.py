"""What goes to Temporal, and in which form: converted, and encrypted where the deployment has keys for it."""
