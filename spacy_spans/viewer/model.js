// The payload as objects, and gold compared with predictions. Nothing here touches the page.

const ERRORS = { missed: "missed", spurious: "spurious", label: "wrong label", boundary: "wrong boundary" };

function readData(data) {
  const layers = data.layers.map((layer, number) => ({
    ...layer, number, id: layer.side ? `${layer.side}:${layer.key}` : layer.key, gold: null, judged: null,
  }));
  for (const layer of layers) {
    if (layer.side !== "predicted" || layer.kind !== "spans") continue;
    const gold = layers.find((x) => x.side === "gold" && x.key === layer.key);
    if (gold) { layer.gold = gold; gold.judged = layer; }
  }
  const docs = data.docs.map((row, index) => {
    const doc = { index, text: row.text, dir: row.dir, lang: row.lang, spans: [], of: new Map() };
    for (const [number, mentions] of Object.entries(row.spans)) {
      const layer = layers[number];
      const own = mentions.map((mention) => readSpan(mention, doc, layer, data.labels));
      doc.of.set(layer, own);
      for (const span of own) { span.number = doc.spans.length; doc.spans.push(span); }
    }
    return doc;
  });
  return { labels: data.labels, layers, docs };
}

function readSpan([label, score, tokens, ...offsets], doc, layer, labels) {
  const parts = [];
  for (let i = 0; i < offsets.length; i += 2) parts.push([offsets[i], offsets[i + 1]]);
  const place = offsets.join();
  return {
    doc, layer, label, name: labels[label], score, tokens, parts, place, id: `${label}|${place}`,
    start: parts[0][0], end: Math.max(...parts.map((part) => part[1])), status: null, number: 0,
  };
}

const overlap = (a, b) => a.parts.some(([s, e]) => b.parts.some(([t, f]) => s < f && t < e));

// Sets the status of the spans of a document that are shown, and adds to the counts of a layer.
// Strict: the same characters and label, a mention with fragments as one. Equal spans count once.
function judge(doc, layer, isShown, counts) {
  const gold = doc.of.get(layer.gold), predicted = doc.of.get(layer);
  if (predicted) for (const span of predicted) span.status = null;
  if (!gold) return;  // The document is not annotated: nothing is right or wrong.
  const wanted = new Map(), found = new Map();
  for (const span of gold) { span.status = null; if (isShown(span)) wanted.set(span.id, span); }
  for (const span of predicted ?? []) if (isShown(span)) found.set(span.id, span);
  counts.gold += wanted.size;
  counts.predicted += found.size;
  const missed = [], spurious = [];
  for (const span of wanted.values()) if (!found.has(span.id)) missed.push(span);
  for (const span of found.values()) if (!wanted.has(span.id)) spurious.push(span);
  counts.right += wanted.size - missed.length;
  const status = new Map();
  for (const span of missed) status.set(span, explain(span, spurious, "missed"));
  for (const span of spurious) status.set(span, explain(span, missed, "spurious"));
  for (const [group, first] of [[gold, wanted], [predicted ?? [], found]]) {
    for (const span of group) {
      const same = isShown(span) ? first.get(span.id) : null;
      span.status = same ? status.get(same) ?? "right" : null;
    }
  }
}

function explain(span, others, otherwise) {
  if (others.some((x) => x.place === span.place)) return "label";
  if (others.some((x) => x.label === span.label && overlap(x, span))) return "boundary";
  return otherwise;
}

function scoreCounts({ right, gold, predicted }) {
  const p = predicted ? right / predicted : null, r = gold ? right / gold : null;
  return { p, r, f: gold + predicted ? (2 * right) / (gold + predicted) : null };
}
