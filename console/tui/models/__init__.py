"""What the views show, as frozen values made by pure functions of the store; nothing here imports textual."""
