"""What a resource may not contain, what a person shall see first, and what it gains the means to do."""
