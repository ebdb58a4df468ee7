"""The lab's commands, a file a command."""
