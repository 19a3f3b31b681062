"""The report of a calibration: its table, and its plots, whose lines have the numbers of it."""

import pytest

from spacy_spans import calibration_report
from spacy_spans.kernels.calibration import N_BINS


def make_row(gold, threshold, curve, **settings):
    names = ("threshold", "precision", "recall")
    return {
        "gold": gold,
        "threshold": threshold,
        "threshold_interval": [0.1, 0.6],
        "value": 0.75,
        "interval": [0.7, 0.8],
        "precision": 0.5,
        "recall": 1.0,
        "reached": True,
        "own": True,
        "note": "",
        "curve": dict(zip(names, curve, strict=True)),
        **settings,
    }


def make_bins(filled):
    """From the number of a bin to its mean, share of right spans and count."""
    columns = {name: [0.0] * N_BINS for name in ("means", "rates", "counts")}
    for i, row in filled.items():
        for name, value in zip(columns, row, strict=True):
            columns[name][i] = value
    return columns


def make_report(**settings):
    overall = make_row(12, 0.4, ([0.1, 0.4, 0.7], [0.25, 0.5, 1.0], [1.0, 0.9, 0.2]))
    skill = make_row(8, 0.6, ([0.2, 0.6], [0.3, 0.8], [0.9, 0.6]))
    few = make_row(4, 0.4, ([0.3, 0.6], [0.4, 0.6], [0.7, 0.1]), value=None, own=False, note="few")
    none = make_row(0, 0.4, ([0.1], [0.0], [0.0]), value=None, own=False, note="none")
    return {
        "spans_key": "sc",
        "left_out": {"documents": 0, "labels": {}},
        "score_map": {"method": "temperature", "temperature": 1.25},
        "metric": "F1",
        "threshold": overall,
        "labels": {"_$few": few, "SKILL": skill, "NONE": none},
        "before": {"p": 0.5, "r": 0.25, "f": 1 / 3, "ece": 0.2},
        "after": {"p": 0.75, "r": 0.75, "f": 0.75, "ece": None},
        "reliability": {
            "before": make_bins({2: (0.25, 0.5, 4), 9: (0.95, 0.9, 10)}),
            "after": make_bins({5: (0.55, 0.5, 14)}),
        },
        **settings,
    }


def test_the_table_has_every_number():
    lines = calibration_report.format_report(make_report()).splitlines()
    cells = {line.split("  ")[0]: line.split() for line in lines if line.strip()}
    assert cells["all labels"][2:] == [
        *("12", "0.400", "0.100-0.600", "75.0", "70.0-80.0", "50.0", "100.0"),
    ]
    # Of a label with the threshold of all nothing else is known.
    assert cells["_$few"] == ["_$few", "4", "0.400", "few"]
    assert cells["before"] == ["before", "50.0", "25.0", "33.3", "20.0"]
    assert cells["after"] == ["after", "75.0", "75.0", "75.0", "-"]
    assert lines[-1] == "Temperature: 1.250"
    text = calibration_report.format_report(make_report(score_map=None))
    assert "Its scores stay as they are" in text


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Draw with one of the functions. RETURNS the axes, of a figure that was written."""
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    from matplotlib.figure import Figure

    figures = []
    save = Figure.savefig

    def remember(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)

    def call(function, report):
        function(report, tmp_path / "plot.svg", "svg")
        assert (tmp_path / "plot.svg").read_text(encoding="utf8").startswith("<?xml")
        return figures[-1].axes

    return call


def lines_of(axes):
    """From the name of each line that has one in the legend to its points."""
    shown = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    return {name: points for name, points in shown.items() if not name.startswith("_")}


def test_reliability_shows_the_bins(draw):
    axes, below = draw(calibration_report.plot_reliability, make_report())
    assert lines_of(axes) == {
        "as it should be": [[0, 0], [1, 1]],
        # Bins without spans have no point.
        "before: calibration error 20.0 %": [[0.25, 0.5], [0.95, 0.9]],
        "after: calibration error - %": [[0.55, 0.5]],
    }
    before, after = below.containers
    assert [bar.get_height() for bar in before] == [0, 0, 4, 0, 0, 0, 0, 0, 0, 10]
    assert [bar.get_height() for bar in after] == [0, 0, 0, 0, 0, 14, 0, 0, 0, 0]
    for i, pair in enumerate(zip(before, after, strict=True)):
        left, middle, _, right = (
            x for bar in pair for x in (bar.get_x(), bar.get_x() + bar.get_width())
        )
        # Side by side, inside of their bin.
        assert i / N_BINS < left < middle < right < (i + 1) / N_BINS


def test_precision_and_recall_show_the_curves_and_the_chosen_thresholds(draw):
    (axes,) = draw(calibration_report.plot_precision_recall, make_report())
    assert lines_of(axes) == {
        "SKILL (8)": [[0.9, 0.3], [0.6, 0.8]],
        # What matplotlib would hide or read as mathematics is shown as it is.
        r"\$few (4)": [[0.7, 0.4], [0.1, 0.6]],
        "all labels (12)": [[1.0, 0.25], [0.9, 0.5], [0.2, 1.0]],
    }
    dots = [line.get_xydata().tolist() for line in axes.get_lines() if line.get_marker() == "o"]
    # Recall and precision of SKILL, of the label with the threshold of all, and of all.
    assert dots == [[[0.6, 0.8]], [[0.7, 0.4]], [[0.9, 0.5]]]
    assert "(without 1 labels with little gold)" in axes.get_title()
    assert axes.get_legend() is not None


def test_lines_of_equal_f_are_that(draw):
    (axes,) = draw(calibration_report.plot_precision_recall, make_report())
    shown = {float(text.get_text().removeprefix("F1 ")) for text in axes.texts}
    assert shown == {i / 10 for i in range(1, 10)}
    curves = [line.get_xydata() for line in axes.get_lines() if line.get_zorder() == 0]
    assert len(curves) == 9
    for curve, f in zip(curves, sorted(shown), strict=True):
        recall, precision = curve.T
        assert 2 * precision * recall / (precision + recall) == pytest.approx(f)
        assert (recall[-1], precision.max() <= 1) == (1.0, True)


def test_a_single_label_has_one_curve(draw):
    report = make_report(labels={"SKILL": make_report()["labels"]["SKILL"]})
    (axes,) = draw(calibration_report.plot_precision_recall, report)
    assert [*lines_of(axes)] == ["SKILL (8)"]
    assert axes.get_title() == "Precision and recall by threshold"


def test_only_labels_with_the_most_gold_are_drawn(draw):
    curve = ([0.5], [0.5], [0.5])
    labels = {f"L{i}": make_row(i, 0.5, curve) for i in range(1, 12)}
    (axes,) = draw(calibration_report.plot_precision_recall, make_report(labels=labels))
    expected = [f"L{i} ({i})" for i in range(11, 3, -1)]
    assert [*lines_of(axes)] == [*expected, "all labels (12)"]
    colours = [line.get_color() for line in axes.get_lines() if line.get_label() in expected]
    assert len({*colours}) == len(expected)
