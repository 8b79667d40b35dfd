"""Where attempts run: in this process, in processes of this machine, or on many machines."""
