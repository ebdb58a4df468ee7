"""`python -m lapidist`"""

from lapidist.commands.cli import main

if __name__ == "__main__":
    main()
