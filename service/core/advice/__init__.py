"""What a reader should know beside the numbers of an answer."""
