"""The first setup of an installation: the clients here, what is offered, and what has changed since the last time."""
