"""What a command sets up before it loads a pipeline. Light to import."""

from pathlib import Path

from spacy_spans.errors import SettingsError


def import_code(path: Path | None) -> None:
    """Import a Python file, for the functions that it registers. None imports nothing.

    Raises SettingsError when there is no such file, or it cannot be imported.
    """
    if path is None:
        return
    if not path.is_file():
        raise SettingsError(f"The code {str(path)!r} is not there, expected a Python file.")
    from spacy.util import import_file

    try:
        import_file("python_code", path)
    # It is the user's: it may raise anything.
    except Exception as error:
        raise SettingsError(
            f"The code {str(path)!r} cannot be imported ({type(error).__name__}: {error}). Correct "
            "it first."
        ) from error


def use_gpu(gpu_id: int) -> None:
    """Run what is loaded from here on on a GPU; below 0: on the CPU.

    Raises SettingsError when there is no such GPU, or the packages for it are missing.
    """
    if gpu_id < 0:
        return
    import spacy

    try:
        spacy.require_gpu(gpu_id)
    # Each library underneath has errors of its own.
    except Exception as error:
        raise SettingsError(
            f"GPU {gpu_id} cannot be used ({error}). Leave --gpu-id out to use the CPU."
        ) from error


def require_matplotlib() -> None:
    """Stop when matplotlib is missing, before any work is done.

    RAISES (SettingsError): It is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "--plot needs matplotlib, which is not installed: "
            "run `pip install 'spacy-spans[viz]'`, or leave --plot out"
        ) from error
