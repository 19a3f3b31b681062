// The panel: layers with thresholds and P/R/F, errors, labels.

const controls = { layers: new Map(), errors: new Map(), labels: new Map() };

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element[name] = value;
  element.append(...children);
  return element;
}

function flip(set, value, isIn) {
  if (isIn) set.add(value); else set.delete(value);
  refresh();
}

function buildControls() {
  $("layers").append(...layers.map(buildLayer));
  if (!layers.length) $("layers").textContent = "No document has spans.";
  $("errors-section").hidden = $("worst-row").hidden = !compared.length;
  for (const [name, words] of Object.entries(ERRORS)) {
    const box = make("input", { type: "checkbox", value: name, onchange: () => flip(state.errors, name, box.checked) });
    const count = make("span", { className: "count" });
    controls.errors.set(name, { box, count });
    $("errors").append(make("label", { className: "row" }, box, make("span", { className: "name" }, words), count));
  }
  const totals = new Map();
  for (const doc of docs) for (const span of doc.spans) if (span.layer.kind === "spans") totals.set(span.label, (totals.get(span.label) ?? 0) + 1);
  for (const label of [...totals.keys()].sort((a, b) => a - b)) {
    const box = make("input", { type: "checkbox", value: labels[label], onchange: () => flip(state.hidden, label, !box.checked) });
    controls.labels.set(label, box);
    $("labels").append(make("label", { className: `row c${label}` }, box,
      make("span", { className: "name" }, labels[label] || "no label"),
      make("span", { className: "count" }, totals.get(label).toLocaleString("en"))));
  }
  $("labels-section").hidden = !totals.size;
  $("all").onclick = () => { state.hidden.clear(); refresh(); };
  $("none").onclick = () => { state.hidden = new Set(totals.keys()); refresh(); };
  $("names").onchange = () => { state.names = $("names").checked; refresh(); };
  $("worst").onchange = () => { state.worst = $("worst").checked; refresh(0); };
  $("query").oninput = () => { state.query = $("query").value; refresh(); };
}

function buildLayer(layer) {
  const box = make("input", { type: "checkbox", value: layer.id, onchange: () => flip(state.on, layer.id, box.checked) });
  const name = make("span", { className: "name" }, layer.key);
  if (layer.side) name.append(make("span", { className: "side" }, ` ${layer.side}`));
  const key = make("span", { className: `key ${layer.side === "gold" ? "gold" : layer.kind}` });
  const count = make("span", { className: "count" });
  const item = make("div", { className: "layer" }, make("label", { className: "row" }, box, key, name, count));
  const own = { box, count };
  controls.layers.set(layer, own);
  // Gold has no scores to choose by; one value for all, as candidates have, is no choice either.
  if (layer.side !== "gold" && layer.range && layer.range[0] < layer.range[1]) {
    const low = Math.min(0, Math.floor(layer.range[0])), high = Math.max(1, Math.ceil(layer.range[1]));
    own.slider = make("input", { type: "range", min: low, max: high, step: (high - low) / 100, ariaLabel: `Lowest score of ${layer.id}` });
    own.slider.value = low;
    own.low = low;
    own.output = make("output");
    own.slider.oninput = () => {
      const value = Number(own.slider.value);
      if (value > low) state.thresholds.set(layer.id, value); else state.thresholds.delete(layer.id);
      requestRefresh();
    };
    item.append(make("div", { className: "slide" }, own.slider, own.output));
  }
  if (layer.gold) {
    own.prf = make("div", { className: "prf", ariaLabel: `Scores of ${layer.key}` });
    own.numbers = make("div", { className: "counts" });
    item.append(own.prf, own.numbers);
  }
  return item;
}

let waiting = 0;
// One refresh for all that a slider says within one frame.
function requestRefresh() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => refresh());
}

const percent = (x) => (x === null ? "–" : (100 * x).toFixed(1));

function showControls(totals, errors) {
  const shown = new Map(layers.map((layer) => [layer, 0]));
  for (const doc of docs) for (const span of doc.spans) if (span.layer.kind === "kept" ? reaches(span) : counts(span)) shown.set(span.layer, shown.get(span.layer) + 1);
  for (const [layer, own] of controls.layers) {
    own.box.checked = state.on.has(layer.id);
    own.count.textContent = shown.get(layer).toLocaleString("en");
    if (own.slider) {
      own.slider.value = state.thresholds.get(layer.id) ?? own.low;
      own.output.textContent = `≥ ${formatScore(Number(own.slider.value))}`;
    }
    if (!own.prf) continue;
    const total = totals.get(layer), { p, r, f } = scoreCounts(total);
    own.prf.replaceChildren(...Object.entries({ P: p, R: r, F: f }).map(([name, x]) => make("span", {}, `${name} `, make("b", {}, percent(x)))));
    own.numbers.textContent = `${total.right} right, ${total.predicted - total.right} wrong, ${total.gold - total.right} not found`;
  }
  for (const [name, { box, count }] of controls.errors) {
    box.checked = state.errors.has(name);
    count.textContent = errors[name].toLocaleString("en");
  }
  for (const [label, box] of controls.labels) box.checked = !state.hidden.has(label);
  $("names").checked = state.names;
  $("worst").checked = state.worst;
  if ($("query").value !== state.query) $("query").value = state.query;
  $("summary").textContent = shownDocs.length === docs.length
    ? `${docs.length.toLocaleString("en")} document${docs.length === 1 ? "" : "s"}`
    : `${shownDocs.length.toLocaleString("en")} of ${docs.length.toLocaleString("en")} documents`;
}
