"""Run the `evolvable` command as `python -m evolvable_server`."""

from evolvable_server.cli import main

if __name__ == "__main__":
    main()
