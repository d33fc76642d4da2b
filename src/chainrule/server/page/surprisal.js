// The text coloured by the surprisal of each token.

import { bitsOfToken, depth, joined, percent, told } from "/page/bits.js";
import { isolated, make, visible } from "/page/dom.js";
import { readings, tokenList, tokenSpan } from "/page/reading.js";

const LEAD = "Your text, coloured by surprisal: −log₂ p of each token given the previous ones. Hover over a token or select it with the arrow keys.";

export function surprisal(panel, state) {
  return readings(panel, state, LEAD, (read) => {
    const ranked = read.map((each) => ({ ...each, ...(each.error ? {} : totals(each.found)) }));
    const best = Math.min(...ranked.map((each) => each.perByte ?? Infinity));
    return ranked.map((each) => card(each, ranked.length > 1 && each.perByte === best));
  });
}

/** Total bits and bits per byte of the tokens shown. */
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
  if (!Number.isFinite(bits)) figures[1] = "contains tokens with probability 0";
  if (found.left_out) figures.push(`the first of ${(found.left_out + tokens).toLocaleString("en")}`);
  if (!found.is_normalized) figures.push("scores, not probabilities");
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const groups = joined(found.tokens);
  const spans = groups.map((group) => tokenSpan(group, depth(group.bits), `${told(group.bits)}`));
  const text = tokenList(spans, groups, `tokens of ${model}`, (at) => describe(detail, found, groups[at]));
  describe(detail, found, groups[0]);
  return make("section", { class: "card" }, title, make("p", { class: "figures", text: figures.join(" · ") }), text, detail);
}

function describe(detail, found, group) {
  const token = group.token;
  const rank = found.is_normalized ? `rank ${token.rank.toLocaleString("en")} of ${found.choices.toLocaleString("en")}` : `rank ${token.rank}`;
  const entropy = token.entropy_bits === null ? "" : `; entropy ${token.entropy_bits.toFixed(2)} bits`;
  const unknown = token.spelling_log_prob === undefined ? "" : "; unknown word, including the bits of its spelling";
  const expected = token.top.slice(0, 5).flatMap((each) => [isolated(visible(each.token, each.is_unknown), { class: "token" }), ` ${percent(each.probability)}`, " · "]).slice(0, -1);
  const name = group.isEnd ? "end of line" : group.piece.trim() || visible(group.piece);
  detail.replaceChildren(isolated(name, { class: "token strong" }), ` ${told(group.bits)}, ${rank}${entropy}${unknown}. Expected: `, ...expected);
}
