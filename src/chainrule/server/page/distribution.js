// Next-token distributions of up to three models, before and after the sampling filters.

import { ask, ending } from "/page/api.js";
import { percent } from "/page/bits.js";
import { debounced, keepFocus, latest, make, roving, slider, visible, withoutJoiners } from "/page/dom.js";

const ROWS = 14;
const ASKED = 60;

export function distribution(panel, state) {
  const again = debounced(60, () => update());
  const temperature = slider("temperature", {
    min: 0, max: 2, step: 0.05, value: 1, format: (T) => (T === 0 ? "0 (greedy)" : T.toFixed(2)), onchange: again,
  });
  const topK = slider("top-k", { min: 0, max: 50, step: 1, value: 0, format: (k) => (k ? `${k}` : "all"), onchange: again });
  const topP = slider("top-p", { min: 0.05, max: 1, step: 0.01, value: 1, format: (p) => (p < 1 ? p.toFixed(2) : "all"), onchange: again });
  const columns = make("div", { class: "columns" });
  panel.append(
    make("p", { class: "lead", text: "Next-token probabilities of each model. Pale: the model’s probability; solid: the probability after filtering; hatched: removed by the filters. Click a bar to append its token." }),
    make("div", { class: "controls" }, temperature.field, topK.field, topP.field),
    columns,
  );
  let charts = new Map();

  const filters = () => ({
    temperature: temperature.value,
    ...(topK.value && { top_k: topK.value }),
    ...(topP.value < 1 && { top_p: topP.value }),
  });

  const load = latest(async (signal) => {
    const body = { prompt: ending(state.text), top: ASKED, ...filters() };
    const known = charts;
    charts = new Map(state.chosen.map((model) => [model, known.get(model) ?? chart(model, state)]));
    const wanted = [...charts.values()].map((each) => each.element);
    if (wanted.length !== columns.children.length || wanted.some((each, i) => columns.children[i] !== each)) {
      keepFocus(() => [...columns.querySelectorAll(".bar")], () => columns.replaceChildren(...wanted), topP.input);
    }
    const answers = await Promise.all(
      state.chosen.map((model) =>
        ask("/v1/next", { model, ...body }, signal).catch((error) => {
          if (signal.aborted) throw error;
          return { error };
        }),
      ),
    );
    const next = answers.map((answer) => answer.next ?? []);
    const most = Math.max(1e-9, ...next.flat().map((each) => Math.max(each.probability, each.shaped_probability)));
    state.chosen.forEach((model, i) => charts.get(model).show(answers[i], most, temperature.value, topP.input));
  }, state.fail);

  async function update() {
    await load();
  }
  return { update };
}

function chart(model, state) {
  const summary = make("p", { class: "figures" });
  const list = make("div", { class: "bars", role: "group", "aria-label": `next tokens of ${model}` });
  const element = make("section", { class: "card" }, make("h3", {}, make("bdi", { text: model })), summary, list);
  const rows = new Map(); // by id, so that bars are animated instead of redrawn
  const inOrder = () => [...rows.values()].sort((a, b) => a.rank - b.rank).map((row) => row.button);
  const settle = roving(list, inOrder);

  /** Show a response; if the focused bar disappears, the bar now at its rank gets the focus, or `fallback`. */
  function show(answer, most, T, fallback) {
    keepFocus(inOrder, () => render(answer, most, T), fallback);
  }

  function render(answer, most, T) {
    if (answer.error) {
      summary.textContent = answer.error.message;
      for (const row of rows.values()) row.button.remove();
      rows.clear();
      return;
    }
    const shown = answer.next.filter((each) => each.probability > 0).slice(0, ROWS);
    const kept = new Set(shown.map((each) => each.id));
    for (const [id, row] of rows) {
      if (kept.has(id)) continue;
      row.button.remove();
      rows.delete(id);
    }
    shown.forEach((each, rank) => {
      if (!rows.has(each.id)) {
        rows.set(each.id, bar(each, state));
        list.append(rows.get(each.id).button);
      }
      rows.get(each.id).set(each, rank, most);
    });
    list.style.setProperty("--rows", shown.length);
    summary.textContent = inWords(answer, T);
    settle();
  }
  return { element, show };
}

function bar(first, state) {
  const own = make("span", { class: "own" });
  const shaped = make("span", { class: "shaped" });
  const number = make("span", { class: "number" });
  const name = visible(first.token, first.is_unknown);
  const label = make("bdi", { class: "token", text: name });
  const track = make("span", { class: "track", "aria-hidden": "true" }, own, shaped);
  let piece = first.text;
  const button = make("button", { class: "bar", type: "button", onclick: () => state.write(piece) }, label, track, number);
  const row = { button, rank: 0 };
  row.set = (each, rank, most) => {
    row.rank = rank;
    piece = each.text; // including a leading blank if needed
    const isCut = each.shaped_probability === 0;
    button.style.setProperty("--rank", rank);
    own.style.width = `${(100 * each.probability) / most}%`;
    shaped.style.width = `${(100 * each.shaped_probability) / most}%`;
    button.classList.toggle("cut", isCut);
    number.textContent = percent(isCut ? each.probability : each.shaped_probability);
    const filtered = isCut ? "removed by the filters" : `${percent(each.shaped_probability)} after filtering`;
    button.setAttribute("aria-label", `write ${each.is_unknown ? name : withoutJoiners(each.token)}: ${percent(each.probability)}, ${filtered}`);
    button.title = `${percent(each.probability)} by the model; ${filtered}`;
  };
  return row;
}

function inWords(answer, T) {
  const words = [`entropy ${answer.entropy_bits.toFixed(2)} bits (perplexity ${(2 ** answer.entropy_bits).toFixed(1)})`];
  if (answer.kept < answer.vocab_size - 2) { // `<s>` is never predicted
    const best = answer.next[0];
    const mass = T === 1 && best.shaped_probability ? `, ${percent(best.probability / best.shaped_probability)} of the probability` : "";
    words.push(`${answer.kept.toLocaleString("en")} token${answer.kept === 1 ? "" : "s"} after filtering${mass}`);
  }
  return `${words.join("; ")}.`;
}
