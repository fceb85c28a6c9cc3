"""What an attempt calls: a function, a URL, a command."""
