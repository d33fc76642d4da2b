// n-gram orders or attention weights behind the prediction of each token.

import { joined, percent, told } from "/page/bits.js";
import { choice, isolated, make, visible } from "/page/dom.js";
import { readings, tokenList, tokenSpan } from "/page/reading.js";

const UNITS = { word: "word", char: "character", byte: "byte" }; // unit of a token by tokenizer

const LEAD = "The context used for each prediction. For n-gram models, the colour of a token is the length of the n-gram that scored it, and its context is underlined; for models with attention, the colours are the attention weights when predicting the selected token.";

export function contextView(panel, state) {
  return readings(panel, state, LEAD, (read) => read.map(card));
}

function card({ model, error, found }) {
  const element = make("section", { class: "card" }, make("h3", {}, isolated(model)));
  if (error) {
    element.append(make("p", { class: "problem", text: error.message }));
    return element;
  }
  for (const view of found.views) {
    element.append(...(view.kind === "depth" ? depthView(model, found, view) : attentionView(model, found, view)));
  }
  if (!found.views.length) {
    element.append(make("p", { class: "figures", text: `No per-token view for this model (${found.family}): its only memory of the text is its hidden state.` }));
  }
  return element;
}

function depthView(model, found, view) {
  const groups = joined(found.tokens);
  const unit = UNITS[found.tokenizer] ?? "token";
  const name = (n) => ({ 1: `single ${unit} (unigram)`, 2: "bigram", 3: "trigram" })[n] ?? `${n}-gram`;
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const orders = (group) => group.places.map((place) => view.found[place]);
  const spans = groups.map((group) => {
    const span = tokenSpan(group, Math.max(...orders(group)) / view.order, `${name(Math.max(...orders(group)))}, ${told(group.bits)}`);
    span.classList.add("cool");
    return span;
  });
  const tell = (at) => {
    const place = groups[at].places[0];
    const used = view.found[place] - 1;
    groups.forEach((group, k) => spans[k].classList.toggle("used", group.places.some((each) => each < place && each >= place - used)));
    detail.replaceChildren(isolated(groups[at].isEnd ? "end of line" : groups[at].piece.trim() || visible(groups[at].piece), { class: "token strong" }),
      ` scored by the ${name(view.found[place])} (model order ${view.order}); ${view.reasons[view.reason[place]]}. ${told(groups[at].bits)}.`);
  };
  const mean = view.found.reduce((sum, each) => sum + each, 0) / view.found.length;
  tell(groups.length - 1);
  return [
    make("p", { class: "figures", text: `n-gram of order ${view.order}; mean n-gram length used: ${mean.toFixed(2)} ${unit}s.` }),
    tokenList(spans, groups, `back-off depth of ${model}`, tell),
    detail,
  ];
}

function attentionView(model, found, view) {
  const groups = joined(found.tokens);
  const of = new Map(groups.flatMap((group, k) => group.places.map((place) => [place, k])));
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const layers = view.rows[0]?.weights ?? [];
  const heads = layers.flatMap((layer, l) => layer.map((_, h) => [`${l},${h}`, `layer ${l + 1}, head ${h + 1}`]));
  let last = Math.max(0, ...groups.map((_, k) => k).filter((k) => groups[k].places[0] < view.rows.length));
  const select = choice("head", [["mean", "mean of all heads"], ...heads], () => tell(last));
  const spans = groups.map((group) => tokenSpan(group, 0, told(group.bits)));
  const start = make("span", { class: "token-text end", text: "<s>", "aria-hidden": "true" });

  function tell(at) {
    last = at;
    const place = groups[at].places[0];
    const row = view.rows[place];
    for (const span of [...spans, start]) span.style.setProperty("--depth", "0");
    spans.forEach((span, k) => span.classList.toggle("asked", k === at));
    if (!row) {
      detail.replaceChildren("Attention weights are shown only for the first tokens of a long text.");
      return;
    }
    const weights = ofHead(row.weights, select.input.value);
    const sums = new Map(); // the input at position s is the token before it
    weights.forEach((weight, s) => {
      const read = row.first + s - 1;
      const k = row.first + s === 0 || groups[of.get(read)].isEnd ? -1 : of.get(read);
      sums.set(k, (sums.get(k) ?? 0) + weight);
    });
    for (const [k, weight] of sums) (k < 0 ? start : spans[k]).style.setProperty("--depth", Math.sqrt(Math.min(weight, 1)).toFixed(3));
    const most = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 4);
    detail.replaceChildren("Before ", isolated(groups[at].isEnd ? "the end of the line" : groups[at].piece.trim() || visible(groups[at].piece), { class: "token strong" }), " it looked at ",
      ...most.flatMap(([k, weight]) => [isolated(k < 0 ? "<s>" : groups[k].piece.trim() || visible(groups[k].piece), { class: "token" }), ` ${percent(weight)}`, "; "]).slice(0, -1), ".");
  }
  const list = tokenList(spans, groups, `attention of ${model}`, tell);
  list.firstElementChild.prepend(start);
  list.classList.add("cool");
  tell(last);
  const size = `${layers.length} layer${layers.length === 1 ? "" : "s"} of ${layers[0]?.length ?? 0} heads`;
  return [make("p", { class: "figures", text: `${found.family === "mixture" ? view.family : "attention"}: ${size}.` }), select.field, list, detail];
}

function ofHead(layers, chosen) {
  if (chosen !== "mean") {
    const [l, h] = chosen.split(",").map(Number);
    return layers[l][h];
  }
  const all = layers.flat();
  return all[0].map((_, s) => all.reduce((sum, head) => sum + head[s], 0) / all.length);
}
