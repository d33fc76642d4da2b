// The Shannon game: guess a hidden text unit by unit and compare your bits with those of the models.

import { ask, context } from "/page/api.js";
import { bitsOf, bitsOfToken, bounds, rankBits, told } from "/page/bits.js";
import { choice, isolated, latest, make, visible } from "/page/dom.js";

const LONGEST = 300; // characters

export function shannon(panel, state) {
  let isSuited = false; // whether the unit has been chosen
  const unit = choice("guess", [["letter", "letters"], ["word", "words"]], () => { isSuited = true; });
  const own = make("textarea", { rows: 2, maxlength: LONGEST, dir: "auto", "aria-label": "text for another player to guess", placeholder: "Or paste a text for another player to guess; it will be hidden." });
  const begin = make("button", { type: "button", class: "primary", text: "New game", onclick: () => start() });
  const board = make("div", { class: "card game", hidden: true });
  panel.append(
    make("p", { class: "lead", text: "Guess the next unit until you are right. The sequence of your guess numbers determines the text, so the bits needed to encode these numbers are an upper bound on its entropy for you (Shannon, 1951). The models are scored by the same code on the rank of the correct unit, and by their exact cost, −log₂ p." }),
    make("div", { class: "controls" }, unit.field, own),
    make("div", { class: "row" }, begin),
    board,
  );

  const start = latest(async (signal) => {
    isSuited = true;
    const given = own.value.trim() || (await ask(`/page/passage?number=${Math.floor(Math.random() * 1e6)}`, null, signal)).text;
    const text = given.replace(/\s+/g, " ").slice(0, LONGEST).trim();
    own.value = "";
    const kind = unit.input.value;
    board.hidden = false;
    board.replaceChildren(make("p", { class: "figures", text: "The models are guessing …" }));
    const read = await Promise.all(state.chosen.map((model) => context(model, text, signal)));
    const units = cut(text, kind);
    const first = Math.min(Math.max(1, kind === "letter" ? 12 : 3), Math.max(units.length - 1, 0));
    const players = state.chosen.map((model, i) => rival(model, read[i], units, kind));
    play(board, { units, first, kind, players, begin });
  }, (error) => {
    board.replaceChildren(make("p", { class: "problem", text: error.message }));
    state.fail(error);
  });

  return {
    /** Default to letters if the first model is character-based; never override the player's choice. */
    update: latest(async (signal) => {
      if (isSuited || !state.chosen.length) return;
      const { tokenizer } = await context(state.chosen[0], "a", signal);
      if (!isSuited) unit.input.value = ["char", "byte"].includes(tokenizer) ? "letter" : "word";
      isSuited = true;
    }, state.fail),
  };
}

/** Split a text into letters, or into words with leading blanks. */
export function cut(text, kind) {
  return kind === "letter" ? Array.from(text) : text.match(/\s*\S+/g) ?? [];
}

/** Bits of each unit under a model, and the ranks if its tokens are the units. */
export function rival(name, found, units, kind) {
  const tokens = found.tokens.filter((token, i) => !(token.token === "</s>" && i === found.tokens.length - 1));
  const isAligned = tokens.length === units.length && tokens.every((token, i) => token.piece.trim() === units[i].trim());
  const bits = units.map(() => 0);
  let [at, done, reached] = [0, 0, units[0]?.length ?? 0];
  for (const token of tokens) {
    done += token.piece.length;
    while (done > reached && at + 1 < units.length) reached += units[++at].length;
    bits[at] += bitsOfToken(token); // counted for the unit in which the token ends
  }
  const ranks = isAligned ? tokens.map((token) => token.rank) : null;
  const spelt = tokens.map((token) => bitsOf(token.spelling_log_prob ?? 0));
  return { name, bits, ranks, spelt, choices: found.choices, tokenizer: found.tokenizer, kind };
}

function play(board, { units, first, kind, players, begin }) {
  let at = first;
  const ranks = []; // guess numbers of the player, one per unit
  const extra = []; // extra bits of units that were shown
  let tried = [];
  const choices = players.find((player) => player.ranks)?.choices ?? (kind === "letter" ? 30 : 10000);
  const text = make("p", { class: "hidden-text", dir: "auto", "aria-live": "polite" });
  const input = make("input", { type: "text", dir: "auto", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: 60, "aria-label": `your guess of the next ${kind}`, placeholder: kind === "letter" ? "next letter (blank counts)" : "next word, then Enter" });
  const wrong = make("p", { class: "figures", role: "status" });
  const told_ = make("p", { class: "detail", "aria-live": "polite" });
  const table = make("div", { class: "scroll" });
  const form = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); guess(input.value); } },
    input,
    make("button", { type: "submit", text: "Guess" }),
    make("button", { type: "button", text: "Show it", onclick: () => accept(tried.length + 1, Math.log2(Math.max(2, choices - tried.length))) }),
    make("button", { type: "button", text: "End", onclick: finish }));
  if (kind === "letter") input.addEventListener("input", (event) => { if (!event.isComposing && input.value) guess(Array.from(input.value).at(-1)); });
  board.replaceChildren(text, form, wrong, told_, table);
  show();
  input.focus();

  function guess(value) {
    input.value = "";
    const mine = kind === "letter" ? value : value.trim();
    if (!mine) return;
    const truth = kind === "letter" ? units[at] : units[at].trim();
    if (mine.toLowerCase() === truth.toLowerCase()) accept(tried.length + 1, 0);
    else if (!tried.includes(mine)) {
      tried.push(mine);
      wrong.replaceChildren("Not ", ...tried.flatMap((each, i) => [i ? ", " : "", isolated(visible(each), { class: "token" })]), ". Guess again.");
    }
  }

  function accept(rank, more) {
    ranks.push(rank);
    extra.push(more);
    const paid = rankBits(ranks).at(-1) + more;
    const theirs = players.map((player) => `${player.name} ${told(player.bits[at])}${player.ranks ? ` (its guess ${player.ranks[at]})` : ""}`);
    told_.replaceChildren("It was ", isolated(visible(units[at].trim() || units[at]), { class: "token strong" }), `${more ? ", shown" : `, guess ${rank}`}: you pay ${told(paid)}; ${theirs.join(", ")}.`);
    wrong.replaceChildren();
    tried = [];
    at += 1;
    show();
    if (at >= units.length) finish();
    else input.focus();
  }

  function show() {
    const left = units.length - at;
    text.replaceChildren(make("span", { class: "given", text: units.slice(0, first).join("") }), make("span", { text: units.slice(first, at).join("") }),
      make("span", { class: "cursor", text: at < units.length ? "▁" : "" }), make("span", { class: "masked", text: left ? ` ${left} to go` : "" }));
    table.replaceChildren(standings(players, ranks, extra, first, at, kind));
  }

  function finish() {
    if (form.contains(document.activeElement)) begin.focus(); // disabled fields lose the focus
    for (const each of form.elements) each.disabled = true;
    at = Math.max(at, first);
    text.replaceChildren(make("span", { class: "given", text: units.slice(0, first).join("") }), make("span", { text: units.slice(first, at).join("") }), make("span", { class: "masked", text: units.slice(at).join("") }));
    if (!ranks.length) return;
    wrong.textContent = `The game is over. ${inBounds(ranks, extra.filter((bits) => bits > 0).length, kind)}`;
  }
}

/** Entropy bounds from the guess numbers; none if a unit was shown. */
function inBounds(ranks, shown, kind) {
  const units = `${ranks.length} ${kind}${ranks.length === 1 ? "" : "s"}`;
  if (shown) return `Shannon’s bounds need every guess number, and ${shown} of ${units} ${shown === 1 ? "was" : "were"} shown: no bounds.`;
  const { lower, upper } = bounds(ranks);
  return `By Shannon’s bounds from the guess numbers of ${units} alone: between ${lower.toFixed(2)} and ${upper.toFixed(2)} bits per ${kind}; few guesses make them low.`;
}

/** Table of the player and the models, fewest bits first. */
function standings(players, ranks, extra, first, at, kind) {
  const n = at - first;
  const sum = (values) => values.reduce((total, each) => total + each, 0);
  const rows = players.map((player) => {
    const own = player.ranks?.slice(first, at);
    return {
      name: player.name,
      byRank: own ? sum(rankBits(own)) + sum(player.spelt.slice(first, at)) : null,
      bits: sum(player.bits.slice(first, at)),
      right: own ? own.filter((rank) => rank === 1).length : null,
    };
  });
  rows.push({ name: "you", byRank: sum(rankBits(ranks)) + sum(extra), bits: null, right: ranks.filter((rank, i) => rank === 1 && !extra[i]).length, isYou: true });
  rows.sort((a, b) => (a.bits ?? a.byRank) - (b.bits ?? b.byRank));
  const number = (value, digits = 1) => make("td", { class: "number", text: value === null ? "–" : Number.isFinite(value) ? value.toFixed(digits) : "∞" });
  const heads = ["", `bits of guesses`, "true bits", `bits per ${kind}`, "right at once"];
  return make("table", {},
    make("caption", { text: n ? `After ${n} ${kind}${n === 1 ? "" : "s"}` : "No guesses yet" }),
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
    make("tbody", {}, ...rows.map((row) => make("tr", { class: row.isYou ? "you" : null },
      make("th", { scope: "row" }, isolated(row.name)), number(row.byRank), number(row.bits), number(n ? (row.bits ?? row.byRank) / n : null, 2), number(row.right, 0)))));
}
