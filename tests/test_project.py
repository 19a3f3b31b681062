"""project.yml: its commands fit together, its downloads are verified, and its workflows run."""

import hashlib
import importlib.util
import json
import re
import shlex
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import spacy
import srsly
from typer.testing import CliRunner
from weasel.cli.document import project_document
from weasel.cli.run import project_run
from weasel.util import load_project_config

from spacy_spans.coverage import measure_coverage
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.readers import read_docbin

FILES = ("project.yml", "scripts", "configs", "assets")


@pytest.fixture
def project(repository, tmp_path):
    """A copy of the project, without anything a run has left in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in FILES:
        source = repository / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def download(repository):
    """The download script, as a module."""
    spec = importlib.util.spec_from_file_location("download", repository / "scripts/download.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config(project):
    return load_project_config(project)


def is_within(path, folders):
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def test_workflows_have_every_command(config):
    used = [step for steps in config["workflows"].values() for step in steps]
    # Two begin by converting the same data.
    assert {*used} == {command["name"] for command in config["commands"]}
    assert len(config["commands"]) == len({command["name"] for command in config["commands"]})


@pytest.mark.parametrize("workflow", ["demo", "pruned", "all"])
def test_commands_need_what_is_there_or_was_made_before(project, config, workflow):
    commands = {command["name"]: command for command in config["commands"]}
    made = []
    for step in config["workflows"][workflow]:
        for dep in commands[step]["deps"]:
            assert is_within(dep, made) or (project / dep).exists(), f"{step} needs {dep}"
        made += commands[step]["outputs"]


@pytest.mark.parametrize("prefix", ["demo-", ""])
def test_what_is_trained_was_checked_with_the_same_settings(config, prefix):
    commands = {command["name"]: command for command in config["commands"]}
    steps = config["workflows"]["demo" if prefix else "all"]
    first = steps.index(f"{prefix}coverage")
    assert steps[first : first + 3] == [f"{prefix}{own}" for own in ("coverage", "debug", "train")]
    (checked,), (trained,) = (commands[prefix + own]["script"] for own in ("debug", "train"))
    words = shlex.split(checked)
    named, settings = words[5:8], words[10:]
    assert words[:5] == ["python", "-m", "spacy", "spans", "debug"]
    assert words[8] == "--json"
    assert all(path in shlex.split(trained) for path in named)
    pairs = list(zip(settings[::2], settings[1::2], strict=True))
    assert "--vars.max_length" in dict(pairs)
    assert all(f"{setting} {value}" in trained for setting, value in pairs)


def test_commands_declare_the_files_they_name(project, config):
    folders = {*(path.split("/")[0] for path in config["directories"]), *FILES}
    for command in config["commands"]:
        assert command["help"]
        declared = [*command["deps"], *command["outputs"]]
        for line in command["script"]:
            assert not re.search(r"[*?|<>;&]", line), "there is no shell to read this"
            for word in shlex.split(line):
                if word.split("/")[0] in folders and "/" in word:
                    # `spacy train` is given the folder that its output lies in.
                    named = is_within(word, declared) or any(is_within(d, [word]) for d in declared)
                    assert named, f"{command['name']} uses {word}"


def test_assets_are_pinned(project):
    assets = srsly.read_yaml(project / "project.yml")["assets"]
    assert {asset["dest"].split("/")[1] for asset in assets} == {
        "skillspan",
        "wnut17",
        "toxic_spans",
    }
    for asset in assets:
        assert re.fullmatch(r"\$\{vars.download_base\}/[^/]+/[^/]+/[0-9a-f]{40}/.+", asset["url"])
        assert re.fullmatch(r"[0-9a-f]{32}", asset["checksum"])
        assert Path(asset["url"]).name == Path(asset["dest"]).name


def test_document_names_workflows_and_assets(project):
    project_document(project, project / "README.md")
    text = (project / "README.md").read_text(encoding="utf8")
    assert "| `demo` | `demo-convert` &rarr;" in text
    assert "| `all` | `download` &rarr;" in text
    assert "downloads/toxic_spans/train/tsd_train.csv" in text


def test_readme_has_the_current_document(repository, project):
    project_document(project, project / "current.md")
    current = (project / "current.md").read_text(encoding="utf8").strip()
    readme = (repository / "README.md").read_text(encoding="utf8")
    # The markers have to be there first, or the command replaces the whole README.
    assert current in readme, "Run `python -m spacy project document . --output README.md`"


def make_small_project(folder, content=b"a O\n"):
    """A project with one asset, and the asset beside it."""
    asset = {
        "dest": "downloads/tiny/train/tiny.conll",
        "url": "${vars.download_base}/someone/tiny/0123/data/tiny.conll",
        "checksum": hashlib.md5(content).hexdigest(),
    }
    srsly.write_yaml(folder / "project.yml", {"assets": [asset]})
    return asset, folder / asset["dest"]


@pytest.mark.parametrize("place", ["tiny/tiny.conll", "someone/tiny/0123/data/tiny.conll"])
def test_download_takes_a_folder_in_either_layout(download, tmp_path, place):
    asset, target = make_small_project(tmp_path)
    source = tmp_path / "base" / place
    source.parent.mkdir(parents=True)
    source.write_bytes(b"a O\n")
    assert download.fetch(asset, str(tmp_path / "base"), target) == str(source)
    assert target.read_bytes() == b"a O\n"


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A web server on this machine; gives its address and its folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


def test_download_takes_a_web_address(download, tmp_path, web):
    address, folder = web
    asset, target = make_small_project(tmp_path)
    with pytest.raises(DataError, match=r"0123/data/tiny.conll did not arrive \(HTTP Error 404"):
        download.fetch(asset, address, target)
    source = folder / "someone/tiny/0123/data/tiny.conll"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"a O\n")
    assert download.fetch(asset, address, target).startswith(address)
    assert target.read_bytes() == b"a O\n"


def test_another_checksum_is_an_error_and_changes_nothing(download, tmp_path):
    asset, target = make_small_project(tmp_path)
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    source = tmp_path / "tiny" / "tiny.conll"
    source.parent.mkdir()
    source.write_bytes(b"another")
    found = hashlib.md5(b"another").hexdigest()
    expected = rf"tiny.conll has checksum {found}, expected {asset['checksum']}"
    with pytest.raises(DataError, match=expected):
        download.fetch(asset, str(tmp_path), target)
    assert [path.name for path in target.parent.iterdir()] == ["tiny.conll"]
    assert target.read_bytes() == b"old"


def test_a_missing_file_is_an_error(download, tmp_path):
    asset, target = make_small_project(tmp_path)
    with pytest.raises(DataError, match=r"tiny.conll is not in .*: looked for .* and .*0123"):
        download.fetch(asset, str(tmp_path), target)


def test_only_listed_datasets_with_checksums_are_downloaded(download, tmp_path):
    asset, _ = make_small_project(tmp_path)
    path = tmp_path / "project.yml"
    with pytest.raises(SettingsError, match=r"No dataset 'other' in .*Use one of tiny"):
        download.list_assets(path, "other")
    del asset["checksum"]
    srsly.write_yaml(path, {"assets": [asset]})
    with pytest.raises(SettingsError, match=r"tiny.conll has no checksum"):
        download.list_assets(path, "tiny")


@pytest.mark.parametrize("dataset", ["skillspan", "wnut17", "toxic_spans"])
def test_published_files_have_the_pinned_checksums(download, project, shared_data, dataset):
    import typer

    app = typer.Typer()
    app.command()(download.main)
    args = [dataset, "--base", str(shared_data / "raw"), "--project", str(project / "project.yml")]
    for expected in ("from", "is there"):
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output
        assert expected in result.output
    for split in ("train", "dev"):
        assert list((project / "downloads" / dataset / split).iterdir())
    assert CliRunner().invoke(app, ["other", *args[1:]]).exit_code == 1


@pytest.fixture
def offline(monkeypatch):
    """Commands that fail at once where they would use the network, and use one core."""
    for name in ("HF_HUB_OFFLINE", "PIP_NO_INDEX", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")


def cut_corpus(raw, base, project, dataset, n_lines):
    """Write the first lines of each file, and their checksums into the project."""
    text = (project / "project.yml").read_text(encoding="utf8")
    (base / dataset).mkdir(parents=True)
    for source in (raw / dataset).glob("*.*"):
        lines = source.read_text(encoding="utf8").splitlines(keepends=True)
        stop = next(i for i in range(n_lines, len(lines)) if not lines[i].strip())
        part = "".join(lines[:stop]).encode("utf8")
        (base / dataset / source.name).write_bytes(part)
        whole = hashlib.md5(source.read_bytes()).hexdigest()
        assert whole in text
        text = text.replace(whole, hashlib.md5(part).hexdigest())
    (project / "project.yml").write_text(text, encoding="utf8")


def check_outputs(project, name, gold, component="span_enumerator"):
    """What both workflows leave behind."""
    training = project / "training" / name
    report = json.loads((training / "coverage.json").read_text(encoding="utf8"))
    assert report["corpus"]["spans"] > 0
    checked = json.loads((training / "debug.json").read_text(encoding="utf8"))
    assert checked["errors"] == 0
    assert f"Gold that {component} can give" in {own["title"] for own in checked["sections"]}
    metrics = json.loads((training / "metrics.json").read_text(encoding="utf8"))
    assert 0 <= metrics["spans_sc_f"] <= 1
    nlp = spacy.load(training / "model-best")
    assert nlp.get_pipe(component).labels == tuple(sorted(report["labels"]))
    doc = nlp("We seek an engineer with experience of Python.")
    assert len(doc.spans["sc"]) == len(doc.spans["sc"].attrs["scores"])
    n_docs = len(list(read_docbin(project / gold, nlp.vocab)))
    page = (project / "renders" / f"{name}.html").read_text(encoding="utf8")
    payload = re.search('<script type="application/json" id="data">(.*)</script>', page).group(1)
    assert len(json.loads(payload)["docs"]) == min(n_docs, 2000)


@pytest.mark.slow
def test_demo_runs(project, offline, capsys):
    overrides = {"vars.max_steps": 2}
    project_run(project, "demo", overrides=overrides, capture=True)
    check_outputs(project, "demo", "corpus/demo/test.spacy")
    report = measure_coverage(
        read_docbin(project / "corpus/demo/test.spacy", spacy.blank("en").vocab)
    )
    assert report["corpus"]["docs"] == 14
    assert report["all"]["crossing"] > 0
    capsys.readouterr()
    project_run(project, "demo", overrides=overrides, capture=True)
    assert capsys.readouterr().out.count("nothing changed") == 6


@pytest.mark.slow
def test_all_runs_on_a_slice(project, shared_data, pretrained, offline, tmp_path, capsys):
    cut_corpus(shared_data / "raw", tmp_path / "base", project, "skillspan", n_lines=300)
    overrides = {
        "vars.dataset": "skillspan",
        "vars.download_base": str(tmp_path / "base"),
        "vars.encoder": str(pretrained),
        "vars.max_steps": 2,
    }
    project_run(project, "all", overrides=overrides, capture=True)
    check_outputs(project, "skillspan", "corpus/skillspan/dev.spacy")
    report = json.loads((project / "training/skillspan/coverage.json").read_text(encoding="utf8"))
    assert set(report["labels"]) == {"Knowledge", "Skill"}
    (sdist,) = (project / "packages").glob("*/dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("/config.cfg") for name in names)
    meta = json.loads((sdist.parents[1] / "meta.json").read_text(encoding="utf8"))
    assert any(name.startswith("spacy-spans") for name in meta["requirements"])
    capsys.readouterr()
    project_run(project, "all", overrides=overrides, capture=True)
    assert capsys.readouterr().out.count("nothing changed") == 8


@pytest.mark.slow
def test_train_takes_the_tagger(project, shared_data, encoder, offline, tmp_path):
    cut_corpus(shared_data / "raw", tmp_path / "base", project, "wnut17", n_lines=300)
    overrides = {
        "vars.dataset": "wnut17",
        "vars.component": "tagger",
        "vars.max_length": None,
        "vars.download_base": str(tmp_path / "base"),
        "vars.encoder": str(encoder),
        "vars.max_steps": 2,
    }
    project_run(project, "all", overrides=overrides, capture=True)
    check_outputs(project, "wnut17", "corpus/wnut17/dev.spacy", component="multispan_tagger")
    assert list((project / "packages").glob("en_wnut17_tagger-0.1.0/dist/*.tar.gz"))
