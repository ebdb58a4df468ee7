"""`python -m lapidist`"""

from lapidist.cli import main

if __name__ == "__main__":
    main()
