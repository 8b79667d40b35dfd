"""Makes `python -m evolvable_server` the `evolvable` command."""

from evolvable_server.cli import main

if __name__ == "__main__":
    main()
