"""What a person or an agent can ask of the library, one module a group."""
