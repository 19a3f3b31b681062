"""The report on spans, as people see it."""

import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_spans.coverage import measure_coverage
from spacy_spans.coverage_report import format_report, plot_report
from spacy_spans.errors import SettingsError

from .pipeline import write_spans


def make_doc(n_tokens, spans):
    return write_spans(Doc(Vocab(), words=["w"] * n_tokens), "sc", spans)


def test_histograms_can_be_drawn_in_ascii():
    report = measure_coverage([make_doc(9, [(0, 1, "A"), (1, 2, "A"), (0, 5, "A")])])
    assert "█   ▄" in format_report(report)
    text = format_report(report, unicode=False)
    assert "#   :" in text
    assert text.isascii()


def test_names_are_printed_without_control_characters():
    docs = [make_doc(5, [(0, 2, "A\x1b[31m\n")])]
    text = format_report(measure_coverage(docs))
    assert r"A\x1b[31m\n" in text
    assert "\x1b" not in text


def test_plot_writes_an_image(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    report = measure_coverage([make_doc(9, [(0, 5, "_A$"), (0, 1, "B")])])
    plot_report(report, tmp_path / "plot.tmp", "png")
    assert (tmp_path / "plot.tmp").read_bytes().startswith(b"\x89PNG")
    plot_report(measure_coverage([]), tmp_path / "empty.png")
    with pytest.raises(SettingsError, match="Cannot write an image of format 'nonsense'"):
        plot_report(report, tmp_path / "plot", "nonsense")
