// Third of three files that are one program: what a person does, and the words beside the map that answer.

// ---- the word in words ----
function made(name, text, properties = {}) {
  const element = Object.assign(document.createElement(name), properties);
  element.textContent = text;
  return element;
}

const cosine = (i, rank) => (cosines[i * K + rank] / 1000).toFixed(3).replace("-", "−");
const facts = (i) => `rank ${number.format(i + 1)}${counts ? `, seen ${number.format(counts[i])} ${counts[i] === 1 ? "time" : "times"}` : ""}`;

let told = NONE;
function tell() {
  const word = shown();
  canvas.classList.toggle("pointing", hovered !== NONE);
  draw();
  if (word === told) return;
  told = word;
  pointed = NONE;
  at("panel").hidden = word === NONE;
  if (word === NONE) return;
  at("word").firstElementChild.textContent = words[word];
  at("facts").textContent = facts(word);
  at("near").hidden = !K;
  at("neighbors").replaceChildren(...near(word).map((j, rank) => entry(j, cosine(word, rank), cosines[word * K + rank] / 10)));
}

function entry(j, value, percent) {
  const button = made("button", "", { type: "button" });
  const bar = made("i", "");
  bar.style.width = `${Math.max(percent, 0)}%`;
  button.append(made("bdi", words[j]), made("span", value), bar);
  const point = (i) => () => {
    pointed = i;
    draw();
  };
  for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, point(j));
  for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, point(NONE));
  button.addEventListener("click", () => {
    choose(j);
    glide(viewOf(j));
    at("word").focus({ preventScroll: true });
  });
  const item = made("li", "");
  item.append(button);
  return item;
}

function choose(i) {
  chosen = i;
  hovered = NONE;
  const address = i === NONE ? "" : `#word=${encodeURIComponent(words[i])}`;
  if (location.hash !== address) history.replaceState(null, "", address || location.pathname + location.search);
  const alike = i === NONE ? [] : near(i).map((j, rank) => `${words[j]} ${cosine(i, rank)}`);
  at("status").textContent = i === NONE ? "" : `${words[i]}, ${facts(i)}${K ? `; nearest: ${alike.join(", ")}` : ""}`;
  tell();
}

// ---- pointers: one drags or points, two pinch ----
const touching = new Map();
let travelled = 0;

function under(px, py) {
  for (let n = seen.length - 1; n >= 0; n--) {
    const [i, [l, t, r, b]] = seen[n];
    if (px >= l && px <= r && py >= t && py <= b) return i;
  }
  let [best, nearest] = [NONE, REACH ** 2];
  for (let i = 0; i < N; i++) {
    const distance = (across(i) - px) ** 2 + (down(i) - py) ** 2;
    if (distance < nearest) [best, nearest] = [i, distance];
  }
  return best;
}

const place = (event) => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};

canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  if (!touching.size) travelled = 0;
  touching.set(event.pointerId, place(event));
});

canvas.addEventListener("pointermove", (event) => {
  const here = place(event);
  const before = touching.get(event.pointerId);
  if (!before) {
    const found = event.pointerType === "touch" ? NONE : under(...here);
    if (found !== hovered) {
      hovered = found;
      tell();
    }
    return;
  }
  const [other] = [...touching].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
  touching.set(event.pointerId, here);
  const [dx, dy] = [here[0] - before[0], here[1] - before[1]];
  travelled += Math.hypot(dx, dy);
  if (travelled < 4) return;
  canvas.classList.add("dragged");
  if (!other) return go({ left: view.left + dx, top: view.top + dy });
  travelled += 4; // the end of a pinch is no tap
  const spread = (spot) => Math.max(Math.hypot(spot[0] - other[0], spot[1] - other[1]), 1);
  zoom(spread(here) / spread(before), (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
  go({ left: view.left + dx / 2, top: view.top + dy / 2 });
});

for (const kind of ["pointerup", "pointercancel"])
  canvas.addEventListener(kind, (event) => {
    if (!touching.delete(event.pointerId) || touching.size) return;
    canvas.classList.remove("dragged");
    if (kind === "pointerup" && travelled < 4) choose(under(...place(event)));
  });

canvas.addEventListener("pointerleave", () => {
  hovered = NONE;
  tell();
});

canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 24 : event.deltaMode === 2 ? 400 : 1;
    const turned = Math.min(Math.max(event.deltaY * lines, -240), 240);
    zoom(Math.exp(-turned * (event.ctrlKey ? 0.01 : 0.002)), ...place(event));
  },
  { passive: false },
);

// ---- keys ----
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The nearest word in a direction, within 45° of it; from none, the word nearest to the middle.
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
  if (dx || dy) glide({ scale: view.scale, left: view.left + dx, top: view.top + dy });
}

canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey) go({ left: view.left - 60 * arrow[0], top: view.top - 60 * arrow[1] });
  else if (arrow) {
    const word = nextWord(arrow);
    choose(word);
    if (word !== NONE) keepInView(word);
  } else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-" || event.key === "_") zoom(1 / 1.4);
  else if (event.key === "0" || event.key === "Home") glide(wholeView());
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

at("closer").addEventListener("click", () => zoom(1.6));
at("farther").addEventListener("click", () => zoom(1 / 1.6));
at("whole").addEventListener("click", () => glide(wholeView()));

// ---- search: words that begin so, the exact one first, then by frequency ----
const search = at("search");
const matches = at("matches");
const spelled = words.map(folded);
let found = [];
let active = NONE;

function lookUp(text) {
  if (!text) return [];
  const exact = words.indexOf(text);
  const all = [];
  for (let i = 0; i < N && all.length < 8; i++) if (i !== exact && spelled[i].startsWith(folded(text))) all.push(i);
  return exact === NONE ? all : [exact, ...all].slice(0, 8);
}

function list() {
  const text = search.value.trim();
  found = lookUp(text);
  active = found.length ? 0 : NONE;
  const none = made("li", `No word shown begins with “${text}”`, { className: "none" });
  const options = found.map((i, n) => {
    const option = made("li", "", { id: `match${n}` });
    option.setAttribute("role", "option");
    option.append(made("bdi", words[i]), made("span", counts ? number.format(counts[i]) : number.format(i + 1)));
    option.addEventListener("pointerdown", (event) => event.preventDefault());
    option.addEventListener("click", () => pick(n));
    return option;
  });
  matches.replaceChildren(...(options.length || !text ? options : [none]));
  open(Boolean(text));
  if (text && !found.length) at("status").textContent = none.textContent;
}

function open(isOpen) {
  matches.hidden = !isOpen;
  search.setAttribute("aria-expanded", String(isOpen && found.length > 0));
  [...matches.children].forEach((option, n) => {
    if (option.id) option.setAttribute("aria-selected", String(n === active));
  });
  if (isOpen && active !== NONE) search.setAttribute("aria-activedescendant", `match${active}`);
  else search.removeAttribute("aria-activedescendant");
}

function pick(n) {
  const word = found[n];
  if (word === undefined) return;
  search.value = words[word];
  open(false);
  choose(word);
  glide(viewOf(word));
}

search.addEventListener("input", list);
search.addEventListener("focus", () => search.value && list());
search.addEventListener("blur", () => open(false));
search.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && matches.hidden) list();
  else if (step && found.length) {
    active = (active + step + found.length) % found.length;
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

// ---- beginning ----
function fromAddress() {
  const wanted = /^#word=(.*)$/.exec(location.hash);
  if (!wanted) return;
  let word = wanted[1];
  try {
    word = decodeURIComponent(word);
  } catch {
    // not encoded: as it stands
  }
  const exact = words.indexOf(word);
  const i = exact !== NONE ? exact : spelled.indexOf(folded(word));
  if (i === NONE) at("status").textContent = `${word} is not among the words shown`;
  else {
    choose(i);
    go(viewOf(i));
  }
}

let isBegun = false;
function resize() {
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  if (!w || !h) return; // not shown yet
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(w * ratio), Math.round(h * ratio)];
  const shift = { left: view.left + (w - width) / 2, top: view.top + (h - height) / 2 };
  [width, height] = [w, h];
  if (!isBegun) turn();
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
