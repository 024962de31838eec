"""What the command line tells people: whose turn it is decides the exit code.

CommandError
├── BadInput: the person who typed the command must mend it; says what, where and what is allowed (exit 2)
└── PrerequisiteError: whoever runs this machine must mend something; says what is down and the command (exit 6)

What else is about the machine (no server, no database, no room on the disk) also exits with 6. Everything else that is
raised is a bug (exit 4): its traceback goes to the log, and the message says how to report it.
"""

from schemas.outcome import EXIT_BAD_INPUT, EXIT_PREREQUISITE


class CommandError(Exception):
    """A command that cannot be carried out, with what to do about it."""

    exit_code = EXIT_PREREQUISITE


class BadInput(CommandError):
    """What was asked for makes no sense as it stands; nothing was started."""

    exit_code = EXIT_BAD_INPUT


class PrerequisiteError(CommandError):
    """Something that Surefoot needs is missing or does not run."""
