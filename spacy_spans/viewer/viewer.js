// The page: controls, state, keyboard. The state is in the URL's fragment, so a view can be shared.

const $ = (id) => document.getElementById(id);
const { labels, layers, docs } = readData(JSON.parse($("data").textContent));
const scroller = $("scroller"), tip = $("tip");
const compared = layers.filter((layer) => layer.gold);
const state = {};
let shownDocs = [];
let current = null;
let saving = 0;

function defaults() {
  return {
    on: new Set(layers.filter((layer) => layer.kind !== "candidates").map((layer) => layer.id)),
    thresholds: new Map(), hidden: new Set(), errors: new Set(), query: "", names: true,
    worst: false, at: 0, span: null,
  };
}

// State and the URL

function writeUrl() {
  const url = new URLSearchParams(), base = defaults();
  for (const layer of layers) {
    if (state.on.has(layer.id) !== base.on.has(layer.id)) url.append(state.on.has(layer.id) ? "on" : "off", layer.id);
    if (state.thresholds.has(layer.id)) url.append("min", `${state.thresholds.get(layer.id)}~${layer.id}`);
  }
  for (const label of state.hidden) url.append("hide", labels[label]);
  for (const error of state.errors) url.append("error", error);
  if (state.query) url.set("q", state.query);
  if (!state.names) url.set("names", "0");
  if (state.worst) url.set("order", "errors");
  if (state.at) url.set("doc", state.at + 1);
  if (state.span) url.set("span", `${state.span.doc.index + 1}.${state.span.number + 1}`);
  const hash = url.toString();
  if (hash === location.hash.slice(1)) return;
  try {
    history.replaceState(null, "", `#${hash}`);
  } catch {
    // Some browsers give files no history.
  }
}

// Browsers allow few changes of the URL in a short time.
function save() {
  clearTimeout(saving);
  saving = setTimeout(writeUrl, 150);
}

function readUrl() {
  const url = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, defaults());
  const known = new Set(layers.map((layer) => layer.id));
  for (const id of url.getAll("on")) if (known.has(id)) state.on.add(id);
  for (const id of url.getAll("off")) state.on.delete(id);
  for (const pair of url.getAll("min")) {
    const at = pair.indexOf("~"), value = Number(pair.slice(0, at));
    if (known.has(pair.slice(at + 1)) && Number.isFinite(value)) state.thresholds.set(pair.slice(at + 1), value);
  }
  for (const name of url.getAll("hide")) if (labels.includes(name)) state.hidden.add(labels.indexOf(name));
  for (const error of url.getAll("error")) if (error in ERRORS) state.errors.add(error);
  state.query = url.get("q") ?? "";
  state.names = url.get("names") !== "0";
  state.worst = url.get("order") === "errors";
  state.at = Math.min(Math.max(0, Math.trunc(Number(url.get("doc"))) - 1 || 0), Math.max(0, docs.length - 1));
  const [doc, number] = (url.get("span") ?? "").split(".").map(Number);
  state.span = docs[doc - 1]?.spans[number - 1] ?? null;
}

// What is shown

const reaches = (span) => span.score === null || !state.thresholds.has(span.layer.id)
  || span.score >= state.thresholds.get(span.layer.id);
const counts = (span) => reaches(span) && !state.hidden.has(span.label);
const isDrawn = (span) => state.on.has(span.layer.id) && span.layer.kind !== "kept" && counts(span)
  && (!state.errors.size || state.errors.has(span.status));
const hasError = (span) => span.status !== null && span.status !== "right";

function findHits(text) {
  if (!state.query) return [];
  const pattern = new RegExp(state.query.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
  return Array.from(text.matchAll(pattern), (match) => [match.index, match.index + match[0].length]);
}

// Compares everything, chooses documents and draws them; `at` is the document to begin with.
function refresh(at = shownDocs[list.anchor.at]?.index ?? 0) {
  const { span } = state, before = shownDocs[list.anchor.at]?.index;
  const totals = new Map(compared.map((layer) => [layer, { right: 0, gold: 0, predicted: 0 }]));
  for (const doc of docs) for (const [layer, total] of totals) judge(doc, layer, counts, total);
  const errors = Object.fromEntries(Object.keys(ERRORS).map((name) => [name, 0]));
  shownDocs = docs.filter((doc) => {
    const wrong = doc.spans.filter((span) => state.on.has(span.layer.id) && hasError(span));
    for (const span of wrong) errors[span.status]++;
    doc.nErrors = wrong.length;
    return (!state.query || findHits(doc.text).length) && (!state.errors.size || doc.spans.some(isDrawn));
  });
  if (state.worst) shownDocs.sort((a, b) => b.nErrors - a.nErrors || a.index - b.index);
  showControls(totals, errors);
  $("list").classList.toggle("named", state.names);
  scroller.style.setProperty("--pitch", state.names ? "17px" : "6px");
  const place = shownDocs.findIndex((doc) => doc.index === at);
  // In the same document the view stays about where it was.
  list.setItems(shownDocs, Math.max(0, place), place >= 0 && at === before ? list.anchor.offset : 0);
  if (!shownDocs.length) {
    const empty = document.createElement("p");
    empty.className = "empty";
    empty.textContent = docs.length ? "No document has what the filters ask for." : "There are no documents to show.";
    $("list").replaceChildren(empty);
  }
  current = null;
  if (span && isDrawn(span)) focusSpan(span);
  save();
}

const nameOf = (span) => {
  const mark = { missed: " − missed", spurious: " + spurious", label: " ≠ label", boundary: " ↔ boundary" }[span.status] ?? "";
  return `${span.name}${span.score === null || span.layer.side === "gold" ? "" : ` ${formatScore(span.score)}`}${mark}`.trim();
};

function drawDoc(doc) {
  const article = document.createElement("article");
  article.className = "doc";
  article.dataset.doc = doc.index;
  const drawn = doc.spans.filter(isDrawn);
  // The names are smaller than the text: two of their characters take the room of little more
  // than one.
  const leftOut = stack(drawn, (span) => (state.names ? Math.ceil(nameOf(span).length * 0.78) + 1 : 0));
  const head = document.createElement("div"), name = document.createElement("b");
  head.className = "head";
  name.textContent = `Document ${doc.index + 1}`;
  head.append(name);
  const add = (text) => { const part = document.createElement("span"); part.textContent = text; head.append(part); };
  for (const [status, words] of Object.entries(ERRORS)) {
    const n = doc.spans.filter((span) => span.status === status && state.on.has(span.layer.id)).length;
    if (n) add(`${n} ${words}`);
  }
  if (leftOut) add(`${leftOut} spans not drawn: empty, or more than ${MOST_TRACKS} deep`);
  const box = document.createElement("div");
  box.className = "text";
  box.dir = doc.dir;
  if (doc.lang && doc.lang !== "xx") box.lang = doc.lang;
  const keptLayers = layers.filter((x) => x.kind === "kept" && state.on.has(x.id) && doc.of.has(x));
  const kept = keptLayers.length ? keptLayers.flatMap((x) => doc.of.get(x).filter(reaches).flatMap((span) => span.parts)) : null;
  drawText(box, doc, drawn, kept, findHits(doc.text), nameOf);
  article.append(head, box);
  if (!doc.text) { box.className = "empty"; box.textContent = "No text."; }
  return article;
}

const list = new VirtualList(scroller, $("list"), drawDoc, (doc) => 90 + 36 * Math.ceil((doc.text.length + 1) / Math.max(20, scroller.clientWidth / 9)));

// Spans under the pointer and under the keyboard

const spanOf = (element) => {
  const bar = element?.closest?.(".bar"), article = bar?.closest(".doc");
  return bar ? docs[article.dataset.doc].spans[bar.dataset.span] : null;
};
const barsOf = (span) => document.querySelectorAll(`.doc[data-doc="${span.doc.index}"] .bar[data-span="${span.number}"]`);

function showTip(spans, x, y) {
  tip.replaceChildren(...spans.map((span) => {
    const item = document.createElement("div"), name = document.createElement("b");
    const rest = document.createElement("span"), quote = document.createElement("q");
    item.className = `c${span.label}`;
    const [first, ...others] = describe(span);
    name.textContent = first;
    rest.textContent = ` ${others.join(" · ")}`;
    const text = span.parts.map(([start, end]) => span.doc.text.slice(start, end)).join(" … ");
    quote.textContent = text.length > 160 ? `${text.slice(0, 110)} … ${text.slice(-40)}` : text;
    quote.dir = "auto";
    item.append(name, rest, quote);
    return item;
  }));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

function light(spans) {
  for (const bar of document.querySelectorAll(".bar.on")) bar.classList.remove("on");
  for (const span of spans) for (const bar of barsOf(span)) bar.classList.add("on");
}

// Below all tracks of the place, so that it hides none of them.
function showBelow(bar, span) {
  const bottoms = [...bar.closest(".seg").querySelectorAll(".bar")].map((x) => x.getBoundingClientRect().bottom);
  showTip([span], bar.getBoundingClientRect().left, Math.max(...bottoms));
}

function leave() {
  light(current ? [current] : []);
  tip.hidden = true;
}

scroller.addEventListener("pointermove", (event) => {
  const bar = event.target.closest?.(".bar");
  if (!bar) { leave(); return; }
  // On a track it is that span; on the text, all that cover it.
  const spans = [];
  if (event.target !== bar || !bar.querySelector(".bar") && isOnText(bar, event)) {
    for (let x = bar; x; x = x.parentElement.closest(".bar")) spans.push(spanOf(x));
  } else spans.push(spanOf(bar));
  light(spans);
  showTip(spans, event.clientX, event.clientY);
});
scroller.addEventListener("pointerleave", leave);

function isOnText(bar, event) {
  const range = document.createRange();
  range.selectNodeContents(bar);
  return [...range.getClientRects()].some((box) => event.clientY >= box.top && event.clientY <= box.bottom);
}

scroller.addEventListener("focusin", (event) => {
  const span = spanOf(event.target);
  if (!span) return;
  current = state.span = span;
  light([span]);
  showBelow(event.target, span);
  $("status").textContent = describe(span).join(", ");
  save();
});
scroller.addEventListener("focusout", () => { current = state.span = null; leave(); save(); });

const inOrder = (doc) => doc.spans.filter((span) => isDrawn(span) && span.track !== -1).sort((a, b) => a.start - b.start || b.end - a.end || a.number - b.number);

function focusSpan(span) {
  const at = shownDocs.indexOf(span.doc);
  if (at < 0) return false;
  if (!list.shown.has(at)) list.go(at);
  const bar = [...barsOf(span)].find((x) => x.tabIndex === 0);
  if (!bar) return false;
  bar.focus({ preventScroll: true });
  bar.scrollIntoView({ block: "nearest" });
  const box = bar.getBoundingClientRect(), view = scroller.getBoundingClientRect();
  if (box.top < view.top + 60 || box.bottom > view.bottom - 100) scroller.scrollTop += box.top - view.top - view.height / 3;
  showBelow(bar, span);
  return true;
}

function step(direction) {
  if (!shownDocs.length) return;
  let at = current ? Math.max(0, shownDocs.indexOf(current.doc)) : list.anchor.at;
  let spans = inOrder(shownDocs[at]);
  let next = current ? spans.indexOf(current) + direction : direction > 0 ? 0 : spans.length - 1;
  for (let n = 0; n <= shownDocs.length; n++) {
    // Those that found no track have nothing to point at.
    for (; spans[next]; next += direction) if (focusSpan(spans[next])) return;
    at = (at + direction + shownDocs.length) % shownDocs.length;
    spans = inOrder(shownDocs[at]);
    next = direction > 0 ? 0 : spans.length - 1;
  }
}

function stepDoc(direction) {
  const at = Math.max(0, Math.min(shownDocs.length - 1, list.anchor.at + direction));
  document.activeElement?.blur();
  list.go(at);
}

function toggleErrors() {
  if (!compared.length) return;
  state.errors = new Set(state.errors.size ? [] : Object.keys(ERRORS));
  refresh();
}

const keys = {
  n: () => step(1), p: () => step(-1), j: () => stepDoc(1), k: () => stepDoc(-1), e: toggleErrors,
  l: () => { state.names = !state.names; refresh(); },
  "/": () => $("query").focus(), "?": () => { $("help").open = !$("help").open; },
  Escape: () => document.activeElement?.blur(),
};
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input[type=search]");
  if (event.ctrlKey || event.metaKey || event.altKey || (isTyping && event.key !== "Escape")) return;
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
scroller.addEventListener("scroll", () => {
  const at = shownDocs[list.anchor.at]?.index ?? 0;
  if (at !== state.at) { state.at = at; save(); }
});
window.addEventListener("hashchange", start);

function start() {
  readUrl();
  current = null;
  refresh(state.span ? state.span.doc.index : state.at);
}

buildControls();
start();
