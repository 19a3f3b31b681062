"""`python -m spacy spans NAME`: one subcommand a file, heavy imports inside the functions.

spaCy imports this module on every `spacy` command, so nothing but typer and spaCy's own command
line, both loaded by then, is imported here.
"""

import typer
from spacy.cli._util import app  # private, but the extension point other plugins use as well

from spacy_spans.cli.bench import bench_cli
from spacy_spans.cli.calibrate import calibrate_cli
from spacy_spans.cli.calibrate_pruner import calibrate_pruner_cli
from spacy_spans.cli.convert import convert_cli
from spacy_spans.cli.coverage import coverage_cli
from spacy_spans.cli.debug import debug_cli
from spacy_spans.cli.evaluate import evaluate_cli
from spacy_spans.cli.prune_heads import prune_heads_cli
from spacy_spans.cli.render import render_cli

spans_cli = typer.Typer(
    name="spans",
    help="Work with span annotations: convert, measure, score and look at them.",
    no_args_is_help=True,
)
spans_cli.command("bench")(bench_cli)
spans_cli.command("calibrate")(calibrate_cli)
spans_cli.command("calibrate-pruner")(calibrate_pruner_cli)
spans_cli.command("convert")(convert_cli)
spans_cli.command("coverage")(coverage_cli)
# Settings of a config are options that are not known here.
spans_cli.command("debug", context_settings={"ignore_unknown_options": True})(debug_cli)
spans_cli.command("evaluate")(evaluate_cli)
spans_cli.command("prune-heads")(prune_heads_cli)
spans_cli.command("render")(render_cli)
app.add_typer(spans_cli)
