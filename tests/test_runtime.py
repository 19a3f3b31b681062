"""What a command sets up before it loads a pipeline."""

import sys

import pytest
import spacy

from spacy_spans.errors import SettingsError
from spacy_spans.runtime import import_code, require_matplotlib, use_gpu


def test_code_is_imported(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(
        "import spacy\n@spacy.registry.misc('tests.shared.v1')\ndef make():\n    return 7\n"
    )
    import_code(path)
    assert spacy.registry.misc.get("tests.shared.v1")() == 7
    import_code(None)


def test_code_that_is_missing_or_broken_is_an_error(tmp_path):
    path = tmp_path / "code.py"
    with pytest.raises(SettingsError, match="is not there, expected a Python file"):
        import_code(path)
    path.write_text("1 / 0")
    with pytest.raises(SettingsError, match=r"cannot be imported \(ZeroDivisionError: division"):
        import_code(path)


def test_a_gpu_is_required_only_when_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(spacy, "require_gpu", asked.append)
    use_gpu(-1)
    assert asked == []
    use_gpu(2)
    assert asked == [2]


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    def fail(gpu_id):
        raise ValueError("No GPU devices detected")

    monkeypatch.setattr(spacy, "require_gpu", fail)
    with pytest.raises(SettingsError, match=r"GPU 0 cannot be used.*Leave --gpu-id out"):
        use_gpu(0)


def test_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingsError, match=r"pip install 'spacy-spans\[viz\]'"):
        require_matplotlib()
