// Third of three files that share one scope: input handling and the side panel.

// ---- side panel ----
function make(name, text, properties = {}) {
  const element = Object.assign(document.createElement(name), properties);
  element.textContent = text;
  return element;
}

const cosine = (i, rank) => (cosines[i * K + rank] / 1000).toFixed(3).replace("-", "−");
const facts = (i) => `rank ${number.format(i + 1)}${counts ? `, seen ${number.format(counts[i])} ${counts[i] === 1 ? "time" : "times"}` : ""}`;

let displayed = NONE;
function updatePanel() {
  const word = activeWord();
  canvas.classList.toggle("pointing", hovered !== NONE);
  draw();
  if (word === displayed) return;
  displayed = word;
  pointed = NONE;
  byId("panel").hidden = word === NONE;
  if (word === NONE) return;
  byId("word").firstElementChild.textContent = words[word];
  byId("facts").textContent = facts(word);
  byId("near").hidden = !K;
  byId("neighbors").replaceChildren(...neighborsOf(word).map((j, rank) => entry(j, cosine(word, rank), cosines[word * K + rank] / 10)));
}

function entry(j, value, percent) {
  const button = make("button", "", { type: "button" });
  const bar = make("i", "");
  bar.style.width = `${Math.max(percent, 0)}%`;
  button.append(make("bdi", words[j]), make("span", value), bar);
  const point = (i) => () => {
    pointed = i;
    draw();
  };
  for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, point(j));
  for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, point(NONE));
  button.addEventListener("click", () => {
    choose(j);
    animateTo(viewOf(j));
    byId("word").focus({ preventScroll: true });
  });
  const item = make("li", "");
  item.append(button);
  return item;
}

function choose(i) {
  chosen = i;
  hovered = NONE;
  const address = i === NONE ? "" : `#word=${encodeURIComponent(words[i])}`;
  if (location.hash !== address) history.replaceState(null, "", address || location.pathname + location.search);
  const alike = i === NONE ? [] : neighborsOf(i).map((j, rank) => `${words[j]} ${cosine(i, rank)}`);
  byId("status").textContent = i === NONE ? "" : `${words[i]}, ${facts(i)}${K ? `; nearest: ${alike.join(", ")}` : ""}`;
  updatePanel();
}

// ---- pointers: one drags or hovers, two pinch ----
const touching = new Map();
let travelled = 0;

function wordAt(px, py) {
  for (let n = drawnLabels.length - 1; n >= 0; n--) {
    const [i, [l, t, r, b]] = drawnLabels[n];
    if (px >= l && px <= r && py >= t && py <= b) return i;
  }
  let [best, nearest] = [NONE, REACH ** 2];
  for (let i = 0; i < N; i++) {
    const distance = (across(i) - px) ** 2 + (down(i) - py) ** 2;
    if (distance < nearest) [best, nearest] = [i, distance];
  }
  return best;
}

const position = (event) => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};

canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  if (!touching.size) travelled = 0;
  touching.set(event.pointerId, position(event));
});

canvas.addEventListener("pointermove", (event) => {
  const current = position(event);
  const before = touching.get(event.pointerId);
  if (!before) {
    const target = event.pointerType === "touch" ? NONE : wordAt(...current);
    if (target !== hovered) {
      hovered = target;
      updatePanel();
    }
    return;
  }
  const [other] = [...touching].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
  touching.set(event.pointerId, current);
  const [dx, dy] = [current[0] - before[0], current[1] - before[1]];
  travelled += Math.hypot(dx, dy);
  if (travelled < 4) return;
  canvas.classList.add("dragged");
  if (!other) return setView({ left: view.left + dx, top: view.top + dy });
  travelled += 4; // the end of a pinch is not a tap
  const spread = (spot) => Math.max(Math.hypot(spot[0] - other[0], spot[1] - other[1]), 1);
  zoom(spread(current) / spread(before), (current[0] + other[0]) / 2, (current[1] + other[1]) / 2);
  setView({ left: view.left + dx / 2, top: view.top + dy / 2 });
});

for (const kind of ["pointerup", "pointercancel"])
  canvas.addEventListener(kind, (event) => {
    if (!touching.delete(event.pointerId) || touching.size) return;
    canvas.classList.remove("dragged");
    if (kind === "pointerup" && travelled < 4) choose(wordAt(...position(event)));
  });

canvas.addEventListener("pointerleave", () => {
  hovered = NONE;
  updatePanel();
});

canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 24 : event.deltaMode === 2 ? 400 : 1;
    const turned = Math.min(Math.max(event.deltaY * lines, -240), 240);
    zoom(Math.exp(-turned * (event.ctrlKey ? 0.01 : 0.002)), ...position(event));
  },
  { passive: false },
);

// ---- keys ----
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The nearest word within 45° of a direction; without a selection, the word nearest to the centre.
function nextWord([dx, dy]) {
  const [fromX, fromY] = chosen === NONE ? [width / 2, height / 2] : [across(chosen), down(chosen)];
  let [best, nearest] = [chosen, Infinity];
  for (let i = 0; i < N; i++) {
    const [right, below] = [across(i) - fromX, down(i) - fromY];
    const [ahead, aside] = [right * dx + below * dy, Math.abs(right * dy) + Math.abs(below * dx)];
    if (i === chosen || (chosen !== NONE && (ahead <= 0 || aside > ahead))) continue;
    const distance = Math.hypot(ahead, 2 * aside);
    if (distance < nearest) [best, nearest] = [i, distance];
  }
  return best;
}

function keepInView(i) {
  const margin = Math.min(80, width / 4, height / 4);
  const inner = (spot, size) => Math.min(Math.max(spot, margin), size - margin) - spot;
  const [dx, dy] = [inner(across(i), width), inner(down(i), height)];
  if (dx || dy) animateTo({ scale: view.scale, left: view.left + dx, top: view.top + dy });
}

canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey) setView({ left: view.left - 60 * arrow[0], top: view.top - 60 * arrow[1] });
  else if (arrow) {
    const word = nextWord(arrow);
    choose(word);
    if (word !== NONE) keepInView(word);
  } else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-" || event.key === "_") zoom(1 / 1.4);
  else if (event.key === "0" || event.key === "Home") animateTo(wholeView());
  else if (event.key === "Escape") choose(NONE);
  else return;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
  search.select();
});

byId("closer").addEventListener("click", () => zoom(1.6));
byId("farther").addEventListener("click", () => zoom(1 / 1.6));
byId("whole").addEventListener("click", () => animateTo(wholeView()));

// ---- search by prefix: the exact match first, then by frequency ----
const search = byId("search");
const matches = byId("matches");
const spelled = words.map(folded);
let results = [];
let active = NONE;

function findMatches(text) {
  if (!text) return [];
  const exact = words.indexOf(text);
  const all = [];
  for (let i = 0; i < N && all.length < 8; i++) if (i !== exact && spelled[i].startsWith(folded(text))) all.push(i);
  return exact === NONE ? all : [exact, ...all].slice(0, 8);
}

function list() {
  const text = search.value.trim();
  results = findMatches(text);
  active = results.length ? 0 : NONE;
  const none = make("li", `No word shown begins with “${text}”`, { className: "none" });
  const options = results.map((i, n) => {
    const option = make("li", "", { id: `match${n}` });
    option.setAttribute("role", "option");
    option.append(make("bdi", words[i]), make("span", counts ? number.format(counts[i]) : number.format(i + 1)));
    option.addEventListener("pointerdown", (event) => event.preventDefault());
    option.addEventListener("click", () => pick(n));
    return option;
  });
  matches.replaceChildren(...(options.length || !text ? options : [none]));
  open(Boolean(text));
  if (text && !results.length) byId("status").textContent = none.textContent;
}

function open(isOpen) {
  matches.hidden = !isOpen;
  search.setAttribute("aria-expanded", String(isOpen && results.length > 0));
  [...matches.children].forEach((option, n) => {
    if (option.id) option.setAttribute("aria-selected", String(n === active));
  });
  if (isOpen && active !== NONE) search.setAttribute("aria-activedescendant", `match${active}`);
  else search.removeAttribute("aria-activedescendant");
}

function pick(n) {
  const word = results[n];
  if (word === undefined) return;
  search.value = words[word];
  open(false);
  choose(word);
  animateTo(viewOf(word));
}

search.addEventListener("input", list);
search.addEventListener("focus", () => search.value && list());
search.addEventListener("blur", () => open(false));
search.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && matches.hidden) list();
  else if (step && results.length) {
    active = (active + step + results.length) % results.length;
    open(true);
  } else if (event.key === "Enter") {
    if (matches.hidden) list();
    pick(active);
  } else if (event.key === "Escape") {
    if (matches.hidden) search.value = "";
    open(false);
  } else return;
  event.preventDefault();
});

// ---- initialization ----
function fromAddress() {
  const match = /^#word=(.*)$/.exec(location.hash);
  if (!match) return;
  let word = match[1];
  try {
    word = decodeURIComponent(word);
  } catch {
    // not percent-encoded: use as is
  }
  const exact = words.indexOf(word);
  const i = exact !== NONE ? exact : spelled.indexOf(folded(word));
  if (i === NONE) byId("status").textContent = `${word} is not among the words shown`;
  else {
    choose(i);
    setView(viewOf(i));
  }
}

let isBegun = false;
function resize() {
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  if (!w || !h) return; // not laid out yet
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(w * ratio), Math.round(h * ratio)];
  const shift = { left: view.left + (w - width) / 2, top: view.top + (h - height) / 2 };
  [width, height] = [w, h];
  if (!isBegun) swapAxes();
  const all = wholeView();
  Object.assign(view, isBegun ? shift : all);
  if (!isBegun) fromAddress();
  isBegun = true;
  paint();
}

readColours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  draw();
});
addEventListener("hashchange", fromAddress);
resize();
new ResizeObserver(resize).observe(canvas);
