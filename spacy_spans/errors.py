"""What this package raises and warns. Messages name the finding, the expectation, the next step."""


class SpansError(ValueError):
    """Base of every error raised on purpose by this package."""


class DataError(SpansError):
    """Input data that cannot be read: names the file and, where there is one, the line."""


class SettingsError(SpansError):
    """A setting that cannot work, or settings that contradict each other."""


class SpansWarning(UserWarning):
    """Something was lost or left out; counted, with an example, once per run."""
