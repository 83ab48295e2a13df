"""Who may do what: teams, API keys and their scopes."""
