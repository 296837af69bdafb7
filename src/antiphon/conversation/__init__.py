"""What a conversation is: its history, what was heard, what is open. Pure rules."""
