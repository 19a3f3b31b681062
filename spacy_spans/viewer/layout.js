// Where spans are drawn: their tracks, and the pieces of text between which nothing changes.

const MOST_TRACKS = 24;
const RTL = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

// Gives spans the number of a track each, shorter ones nearer to the text, the layers in order.
// No two on a track meet, with room for the name where names are drawn. What finds no track is
// left out: its number is returned.
function stack(spans, roomOf) {
  const order = [...spans].sort((a, b) =>
    a.layer.number - b.layer.number || a.end - a.start - (b.end - b.start) || a.start - b.start);
  const tracks = [];
  let leftOut = 0;
  for (const span of order) {
    const end = Math.max(span.end, span.start + roomOf(span));
    let track = 0;
    // Below all of other layers that it meets, so that layers do not mix.
    for (let t = tracks.length - 1; t >= 0 && !track; t--) {
      if (tracks[t].some((x) => x.span.layer !== span.layer && x.start < end && span.start < x.end)) track = t + 1;
    }
    while (track < MOST_TRACKS && tracks[track]?.some((x) => x.start < end && span.start < x.end)) track++;
    span.track = track < MOST_TRACKS && span.start < span.end ? track : -1;
    if (span.track < 0) { leftOut++; continue; }
    while (tracks.length <= track) tracks.push([]);
    tracks[track].push({ start: span.start, end, span });
  }
  return leftOut;
}

// The end of the first character as readers see it, with its combining marks.
function afterFirst(text, start, end) {
  const match = /^(?:\r\n|\P{M}[\p{M}\u200d\ufe0f]*)/u.exec(text.slice(start, Math.min(end, start + 32)));
  return start + Math.max(1, match ? match[0].length : 1);
}

// Cuts the text wherever a span, a kept run or a search hit begins or ends.
// Returns pieces { start, end, bars: [{ span, isFirst, isGap, isName }], isPruned, isFound }.
function cut(text, spans, kept, hits) {
  const cuts = new Set([0, text.length]);
  const runs = [];
  for (const span of spans) {
    if (span.track < 0) continue;
    let before = null;
    for (const [start, end] of span.parts) {
      const first = Math.min(afterFirst(text, start, end), end);
      for (const x of [start, first, end]) cuts.add(x);
      if (before !== null && before < start) runs.push([before, start, { span, isGap: true }]);
      runs.push([start, first, { span, isFirst: true, isName: start === span.start }]);
      if (first < end) runs.push([first, end, { span }]);
      before = end;
    }
  }
  for (const [start, end] of [...(kept ?? []), ...hits]) { cuts.add(start); cuts.add(end); }
  const places = [...cuts].sort((a, b) => a - b);
  const at = new Map(places.map((x, i) => [x, i]));
  const pieces = places.slice(0, -1).map((start, i) => ({
    start, end: places[i + 1], bars: [], isPruned: Boolean(kept), isFound: false,
  }));
  const each = (start, end, change) => { for (let i = at.get(start); i < at.get(end); i++) change(pieces[i]); };
  for (const [start, end, bar] of runs) each(start, end, (piece) => piece.bars.push(bar));
  for (const [start, end] of kept ?? []) each(start, end, (piece) => { piece.isPruned = false; });
  for (const [start, end] of hits) each(start, end, (piece) => { piece.isFound = true; });
  return pieces;
}

// Draws a document's text into a box; the only text nodes are the text itself.
function drawText(box, doc, spans, kept, hits, nameOf) {
  for (const piece of cut(doc.text, spans, kept, hits)) {
    const content = document.createTextNode(doc.text.slice(piece.start, piece.end));
    let inner = content;
    if (piece.isPruned || piece.isFound) {
      inner = document.createElement("span");
      inner.className = `${piece.isPruned ? "pruned" : ""} ${piece.isFound ? "found" : ""}`;
      inner.append(content);
    }
    if (!piece.bars.length) { box.append(inner); continue; }
    // Deeper tracks outside, so that a pointer between two tracks meets the upper one.
    piece.bars.sort((a, b) => a.span.track - b.span.track);
    for (const bar of piece.bars) inner = drawBar(bar, inner, nameOf, RTL.test(doc.text.charAt(bar.span.start)));
    const up = document.createElement("span"), seg = document.createElement("span");
    up.className = "up";
    seg.className = "seg";
    seg.style.setProperty("--h", `calc(${piece.bars.at(-1).span.track + 1} * var(--pitch) + 2px)`);
    up.append(inner);
    seg.append(up);
    box.append(seg);
  }
}

function drawBar({ span, isFirst, isGap, isName }, inner, nameOf, isRtl) {
  const bar = document.createElement("span");
  const classes = ["bar", `c${span.label}`, span.layer.side === "gold" ? "gold" : span.layer.kind];
  if (isGap) classes.push("gap");
  if (isFirst) classes.push("first");
  if (isFirst && isRtl) classes.push("rtl");
  if (span.status && span.status !== "right") classes.push("wrong");
  bar.className = classes.join(" ");
  bar.dataset.span = span.number;
  bar.style.setProperty("--t", span.track);
  if (isName) {
    bar.dataset.name = nameOf(span);
    bar.tabIndex = 0;
    bar.setAttribute("role", "mark");
    bar.setAttribute("aria-label", describe(span).join(", "));
  }
  bar.append(inner);
  return bar;
}

const formatScore = (score) => (score === null ? "" : String(Math.round(score * 1000) / 1000));

// What a reader wants to know of a span, in the order of a sentence.
function describe(span) {
  const parts = span.parts.length > 1 ? [`${span.parts.length} fragments`] : [];
  const characters = span.parts.reduce((n, [start, end]) => n + [...span.doc.text.slice(start, end)].length, 0);
  return [
    span.name || "no label",
    ...(span.score === null ? [] : [`score ${formatScore(span.score)}`]),
    ...(span.status ? [ERRORS[span.status] ?? "right"] : []),
    `${span.layer.side ? `${span.layer.side}, ` : ""}key ${span.layer.key}`,
    `${span.tokens} token${span.tokens === 1 ? "" : "s"}, ${characters} character${characters === 1 ? "" : "s"}`,
    ...parts,
  ];
}
