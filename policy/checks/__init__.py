"""Health checks and fence policies: what they judge, what each thinks of it, and when a brake is closed."""
