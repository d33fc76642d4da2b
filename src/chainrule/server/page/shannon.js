// The Shannon game: guess a hidden text token by token; your bits against the models'.

import { ask, context } from "/page/api.js";
import { bitsOf, bitsOfToken, bounds, rankBits, told } from "/page/bits.js";
import { choice, isolated, latest, make, visible } from "/page/dom.js";

const LONGEST = 300; // characters of a text to guess

export function shannon(panel, state) {
  let isSuited = false; // the unit is chosen, by the player or for the first model
  const unit = choice("guess", [["letter", "letters"], ["word", "words"]], () => { isSuited = true; });
  const own = make("textarea", { rows: 2, maxlength: LONGEST, dir: "auto", "aria-label": "a text of your own for another to guess", placeholder: "Or paste a text for somebody else to guess; the game hides it." });
  const begin = make("button", { type: "button", class: "primary", text: "New game", onclick: () => start() });
  const board = make("div", { class: "card game", hidden: true });
  panel.append(
    make("p", { class: "lead", text: "Guess what comes next until you are right: an identical twin of yours could restore the text from your guess numbers alone, so the bits it takes to send these numbers bound what the text holds for you (Shannon, 1951). The models pay by the same rule for the rank of the truth among their guesses, and beside it their true price, −log₂ p." }),
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
    /** Letters where the first model reads letters, else words; asked once, and never against the player's choice. */
    update: latest(async (signal) => {
      if (isSuited || !state.chosen.length) return;
      const { tokenizer } = await context(state.chosen[0], "a", signal);
      if (!isSuited) unit.input.value = ["char", "byte"].includes(tokenizer) ? "letter" : "word";
      isSuited = true;
    }, state.fail),
  };
}

/** Letters, or words with the blank before them. */
export function cut(text, kind) {
  return kind === "letter" ? Array.from(text) : text.match(/\s*\S+/g) ?? [];
}

/** What a model pays for each unit: its true bits, and its ranks where its tokens are the units. */
export function rival(name, found, units, kind) {
  const tokens = found.tokens.filter((token, i) => !(token.token === "</s>" && i === found.tokens.length - 1));
  const isAligned = tokens.length === units.length && tokens.every((token, i) => token.piece.trim() === units[i].trim());
  const bits = units.map(() => 0);
  let [at, done, reached] = [0, 0, units[0]?.length ?? 0];
  for (const token of tokens) {
    done += token.piece.length;
    while (done > reached && at + 1 < units.length) reached += units[++at].length;
    bits[at] += bitsOfToken(token); // of the unit in which it ends
  }
  const ranks = isAligned ? tokens.map((token) => token.rank) : null;
  const spelt = tokens.map((token) => bitsOf(token.spelling_log_prob ?? 0));
  return { name, bits, ranks, spelt, choices: found.choices, tokenizer: found.tokenizer, kind };
}

function play(board, { units, first, kind, players, begin }) {
  let at = first;
  const ranks = []; // yours, one for each unit
  const extra = []; // bits of those you gave up
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
    if (form.contains(document.activeElement)) begin.focus(); // disabled fields would lose the focus
    for (const each of form.elements) each.disabled = true;
    at = Math.max(at, first);
    text.replaceChildren(make("span", { class: "given", text: units.slice(0, first).join("") }), make("span", { text: units.slice(first, at).join("") }), make("span", { class: "masked", text: units.slice(at).join("") }));
    if (!ranks.length) return;
    wrong.textContent = `The game is over. ${inBounds(ranks, extra.filter((bits) => bits > 0).length, kind)}`;
  }
}

/** What the guess numbers alone say; nothing where one of them is not known, as of a unit that was shown. */
function inBounds(ranks, shown, kind) {
  const units = `${ranks.length} ${kind}${ranks.length === 1 ? "" : "s"}`;
  if (shown) return `Shannon’s bounds need every guess number, and ${shown} of ${units} ${shown === 1 ? "was" : "were"} shown: no bounds.`;
  const { lower, upper } = bounds(ranks);
  return `By Shannon’s bounds from the guess numbers of ${units} alone: between ${lower.toFixed(2)} and ${upper.toFixed(2)} bits per ${kind}; few guesses make them low.`;
}

/** You and the models, the fewest bits first. */
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
  const heads = ["", `bits by guesses`, "true bits", `bits per ${kind}`, "right at once"];
  return make("table", {},
    make("caption", { text: n ? `After ${n} ${kind}${n === 1 ? "" : "s"}` : "Nobody has guessed yet" }),
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
    make("tbody", {}, ...rows.map((row) => make("tr", { class: row.isYou ? "you" : null },
      make("th", { scope: "row" }, isolated(row.name)), number(row.byRank), number(row.bits), number(n ? (row.bits ?? row.byRank) / n : null, 2), number(row.right, 0)))));
}
