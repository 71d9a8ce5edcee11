"""What a user can set: the values, the files they stand in, and the variables that the user named."""
