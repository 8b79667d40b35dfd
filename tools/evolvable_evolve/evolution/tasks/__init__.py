"""Task sets: the tasks that programs are measured on, read, split and checked, with a held-out test."""
