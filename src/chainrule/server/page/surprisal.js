// The text as each model reads it: the deeper a token's colour the more bits it cost.

import { beginning, context } from "/page/api.js";
import { bitsOfToken, depth, joined, percent, told } from "/page/bits.js";
import { isolated, latest, make, roving, visible } from "/page/dom.js";

export function surprisal(panel, state) {
  const cards = make("div", { class: "stack" });
  panel.append(
    make("p", { class: "lead", text: "Your text, coloured by surprisal: −log₂ p of each token given those before it. Point at a token, or reach it with the arrow keys." }),
    cards,
  );
  const update = latest(async (signal) => {
    const text = beginning(state.text);
    if (!text) {
      cards.replaceChildren(make("p", { class: "empty", text: "Write something above." }));
      return;
    }
    const found = await Promise.all(
      state.chosen.map((model) => context(model, text, signal).catch((error) => {
        if (signal.aborted) throw error;
        return { error };
      })),
    );
    const ranked = state.chosen.map((model, i) => ({ model, ...(found[i].error ? { error: found[i].error } : totals(found[i])), found: found[i] }));
    const best = Math.min(...ranked.map((each) => each.perByte ?? Infinity));
    cards.replaceChildren(...ranked.map((each) => card(each, ranked.length > 1 && each.perByte === best)));
  }, state.fail);
  return { update };
}

/** The bits of what is shown, and per byte of it. */
export function totals(found) {
  const bits = found.tokens.reduce((sum, token) => sum + bitsOfToken(token), 0);
  const encoder = new TextEncoder();
  const shown = encoder.encode(found.tokens.map((token) => token.piece).join("")).length;
  const bytes = found.left_out ? shown : found.bytes;
  return { bits, bytes, perByte: bits / Math.max(bytes, 1), tokens: found.tokens.length };
}

function card({ model, error, found, bits, perByte, tokens }, isBest) {
  const title = make("h3", {}, isolated(model), isBest ? make("span", { class: "badge", text: "fewest bits" }) : null);
  if (error) return make("section", { class: "card" }, title, make("p", { class: "problem", text: error.message }));
  const figures = [`${told(bits, 1)}`, `${perByte.toFixed(3)} bits per byte`, `${tokens.toLocaleString("en")} tokens (${found.tokenizer})`];
  if (!Number.isFinite(bits)) figures[1] = "some of it is impossible for this model";
  if (found.left_out) figures.push(`the first of ${(found.left_out + tokens).toLocaleString("en")}`);
  if (!found.is_normalized) figures.push("scores, not probabilities");
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const groups = joined(found.tokens);
  const spans = groups.map((group) => tokenSpan(group, depth(group.bits), `${told(group.bits)}`));
  const text = tokenList(spans, groups, `tokens of ${model}`, (at) => describe(detail, found, groups[at]));
  describe(detail, found, groups[0]);
  return make("section", { class: "card" }, title, make("p", { class: "figures", text: figures.join(" · ") }), text, detail);
}

/** One token in running text, on a colour of this depth. */
export function tokenSpan(group, deep, remark) {
  const text = group.isEnd ? "⏎" : group.piece;
  const span = make("span", { class: group.isEnd ? "token-text end" : "token-text", role: "option", tabindex: -1, title: remark, text });
  span.style.setProperty("--depth", deep.toFixed(3));
  span.setAttribute("aria-label", `${group.isEnd ? "end of line" : group.piece}, ${remark}`);
  if (!Number.isFinite(group.bits)) span.classList.add("impossible");
  return span;
}

/** Tokens in lines of their own direction; `tell` hears which one is pointed at or has the focus. */
export function tokenList(spans, groups, label, tell) {
  const list = make("div", { class: "reading", role: "listbox", "aria-label": label });
  let line = make("div", { dir: "auto", role: "presentation" });
  list.append(line);
  spans.forEach((span, at) => {
    line.append(span);
    const choose = () => {
      for (const other of spans) other.setAttribute("aria-selected", String(other === span));
      tell(at);
    };
    span.addEventListener("focus", choose);
    span.addEventListener("pointerenter", choose);
    span.addEventListener("click", () => span.focus());
    if (groups[at].isEnd && at + 1 < spans.length) list.append((line = make("div", { dir: "auto", role: "presentation" })));
  });
  roving(list, () => spans)();
  return list;
}

function describe(detail, found, group) {
  const token = group.token;
  const rank = found.is_normalized ? `rank ${token.rank.toLocaleString("en")} of ${found.choices.toLocaleString("en")}` : `rank ${token.rank}`;
  const unsure = token.entropy_bits === null ? "" : `; unsure by ${token.entropy_bits.toFixed(2)} bits`;
  const unknown = token.spelling_log_prob === undefined ? "" : "; unknown to the model, so spelt out";
  const expected = token.top.slice(0, 5).flatMap((each) => [isolated(visible(each.token), { class: "token" }), ` ${percent(each.probability)}`, " · "]).slice(0, -1);
  const name = group.isEnd ? "end of line" : group.piece.trim() || visible(group.piece);
  detail.replaceChildren(isolated(name, { class: "token strong" }), ` ${told(group.bits)}, ${rank}${unsure}${unknown}. Expected: `, ...expected);
}
