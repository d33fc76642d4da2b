"use strict";
// The data: words by frequency; x, y where they stand; K neighbours of each with their cosines in thousandths.
const { words, counts, neighbors, cosines, ...places } = JSON.parse(document.getElementById("data").textContent);
let { x, y } = places;
const N = words.length;
const K = neighbors.length / N;
const at = (id) => document.getElementById(id);
const canvas = at("map");
const pen = canvas.getContext("2d");
const LABEL = 16; // height of a label in pixels
const REACH = 14; // how near to a dot counts as pointing at it
const NONE = -1;

// ---- the view: a place (x, y) of the map is drawn at (x·scale + left, top − y·scale) ----
const view = { scale: 1, left: 0, top: 0 };
let whole = 1; // the scale at which all is seen
let width = 0;
let height = 0;
let chosen = NONE; // kept by a click, a key or the search
let hovered = NONE;
let pointed = NONE; // in the list of neighbours
let waiting = false;
let gliding = 0;

const across = (i) => x[i] * view.scale + view.left;
const down = (i) => view.top - y[i] * view.scale;
const shown = () => (hovered !== NONE ? hovered : chosen);
const near = (i) => neighbors.slice(i * K, i * K + K);
const bounded = (scale) => Math.min(Math.max(scale, whole / 2), whole * 80);
const folded = (word) => word.toLowerCase();
const number = new Intl.NumberFormat("en");

const low = (all) => all.reduce((a, b) => Math.min(a, b));
const high = (all) => all.reduce((a, b) => Math.max(a, b));

// A wide map on a tall screen, or a tall one on a wide screen, is laid on its side: which way is up means nothing.
function turn() {
  const isWide = high(x) - low(x) > high(y) - low(y);
  if (isWide === height > width) [x, y] = [y, x];
}

function wholeView() {
  const [lowX, highX, lowY, highY] = [low(x), high(x), low(y), high(y)];
  const margin = Math.min(48, width / 10);
  whole = Math.min((width - 2 * margin) / Math.max(highX - lowX, 1), (height - 2 * margin) / Math.max(highY - lowY, 1));
  whole = Math.max(whole, 1e-6);
  return { scale: whole, left: width / 2 - ((lowX + highX) / 2) * whole, top: height / 2 + ((lowY + highY) / 2) * whole };
}

function zoom(factor, px = width / 2, py = height / 2) {
  const scale = bounded(view.scale * factor);
  const ratio = scale / view.scale;
  go({ scale, left: px + (view.left - px) * ratio, top: py + (view.top - py) * ratio });
}

function go(target) {
  cancelAnimationFrame(gliding);
  Object.assign(view, target);
  draw();
}

// Glide to a view, geometrically in scale; at once where motion is not wanted.
function glide(target) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return go(target);
  cancelAnimationFrame(gliding);
  const start = { ...view };
  const middle = (v) => [(width / 2 - v.left) / v.scale, (v.top - height / 2) / v.scale];
  const [from, to] = [middle(start), middle(target)];
  const began = performance.now();
  const step = (now) => {
    const t = Math.min(Math.max((now - began) / 300, 0), 1);
    const part = t * t * (3 - 2 * t);
    const scale = start.scale * (target.scale / start.scale) ** part;
    const [mx, my] = [0, 1].map((axis) => from[axis] + (to[axis] - from[axis]) * part);
    Object.assign(view, t < 1 ? { scale, left: width / 2 - mx * scale, top: height / 2 + my * scale } : target);
    paint();
    if (t < 1) gliding = requestAnimationFrame(step);
  };
  gliding = requestAnimationFrame(step);
}

// The word in the middle, as close as its neighbours allow, within limits.
function viewOf(i) {
  const far = near(i).map((j) => Math.max(Math.abs(x[j] - x[i]) / width, Math.abs(y[j] - y[i]) / height));
  const half = far.sort((a, b) => a - b)[Math.floor(far.length / 2)] || 0;
  const scale = Math.min(Math.max(0.3 / Math.max(half, 1e-9), whole * 3), whole * 8);
  return { scale, left: width / 2 - x[i] * scale, top: height / 2 + y[i] * scale };
}

// ---- labels: frequent words first, each beside its dot where no other label stands ----
const ordinary = "12.5px system-ui, sans-serif";
const strong = "600 14px system-ui, sans-serif";
const widths = { [ordinary]: new Float32Array(N), [strong]: new Float32Array(N) };

function labelWidth(i, font) {
  if (!widths[font][i]) {
    pen.font = font;
    widths[font][i] = pen.measureText(words[i]).width + 4;
  }
  return widths[font][i];
}

// Boxes on a grid, so that only those close by are compared.
class Boxes {
  cells = new Map();
  *keys([l, t, r, b]) {
    for (let row = Math.floor(t / 32); row <= Math.floor(b / 32); row++)
      for (let column = Math.floor(l / 96); column <= Math.floor(r / 96); column++) yield row * 1e6 + column;
  }
  hits(box) {
    for (const key of this.keys(box))
      for (const [l, t, r, b] of this.cells.get(key) ?? []) if (l < box[2] && box[0] < r && t < box[3] && box[1] < b) return true;
    return false;
  }
  add(box) {
    for (const key of this.keys(box)) this.cells.has(key) ? this.cells.get(key).push(box) : this.cells.set(key, [box]);
  }
}

// Right of the dot, left, above, below; [left, top, right, bottom].
function sides(px, py, w) {
  const [h, gap] = [LABEL, 5];
  return [
    [px + gap, py - h / 2, px + gap + w, py + h / 2],
    [px - gap - w, py - h / 2, px - gap, py + h / 2],
    [px - w / 2, py - gap - h, px + w / 2, py - gap],
    [px - w / 2, py + gap, px + w / 2, py + gap + h],
  ];
}

// The layout of all labels at a scale does not depend on where the map is moved, so labels keep still then.
const layout = { scale: 0, side: new Int8Array(N) };
function layOut() {
  if (layout.scale === view.scale) return;
  layout.scale = view.scale;
  const boxes = new Boxes();
  for (let i = 0; i < N; i++) {
    const [px, py] = [x[i] * view.scale, -y[i] * view.scale];
    const dot = [px - 3, py - 3, px + 3, py + 3];
    layout.side[i] = NONE;
    if (boxes.hits(dot)) continue;
    const choices = sides(px, py, labelWidth(i, ordinary));
    layout.side[i] = choices.findIndex((box) => !boxes.hits(box));
    if (layout.side[i] === NONE) continue;
    boxes.add(choices[layout.side[i]]);
    boxes.add(dot);
  }
}

// ---- drawing ----
let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "soft", "dot", "accent", "mark"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
}

const seen = []; // [word, box] of every label drawn, for the pointer
const commonest = Math.log((counts ? counts[0] : N) + 1) || 1;
const weight = (i) => (counts ? Math.log(counts[i] + 1) / commonest : 1 - Math.log(i + 1) / commonest);
const radius = (i) => (1.3 + 1.7 * weight(i)) * Math.min((view.scale / whole) ** 0.25, 2);

function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    paint();
  });
}

function dot(i, size, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(across(i), down(i), size, 0, 2 * Math.PI);
  pen.fill();
}

function write(i, box, font, colour) {
  pen.font = font;
  pen.strokeStyle = colours.paper;
  pen.fillStyle = colour;
  pen.strokeText(words[i], box[0] + 2, (box[1] + box[3]) / 2 + 0.5);
  pen.fillText(words[i], box[0] + 2, (box[1] + box[3]) / 2 + 0.5);
  seen.push([i, box]);
}

const isInside = (i, margin) => across(i) > -margin && across(i) < width + margin && down(i) > -margin && down(i) < height + margin;

function paint() {
  const ratio = devicePixelRatio || 1;
  const word = shown();
  const marked = word === NONE ? [] : [word, ...near(word)];
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.lineJoin = "round";
  pen.lineWidth = 3;
  seen.length = 0;
  pen.globalAlpha = word === NONE ? 0.6 : 0.35;
  for (let i = N - 1; i >= 0; i--) if (isInside(i, 9)) dot(i, radius(i), colours.dot);
  pen.globalAlpha = 1;
  const taken = paintLines(word, marked);
  layOut();
  pen.lineWidth = 3;
  for (let i = N - 1; i >= 0; i--) {
    if (layout.side[i] === NONE || marked.includes(i) || !isInside(i, 200)) continue;
    const box = sides(across(i), down(i), labelWidth(i, ordinary))[layout.side[i]];
    if (!taken.boxes.hits(box)) write(i, box, ordinary, word === NONE ? colours.ink : colours.soft);
  }
  for (const [i, box] of taken.labels.reverse()) write(i, box, strong, i === word ? colours.mark : colours.accent);
}

// Lines to the neighbours and their dots; room for their labels, which stand above all others.
function paintLines(word, marked) {
  const taken = { boxes: new Boxes(), labels: [] };
  pen.strokeStyle = colours.accent;
  for (const [rank, j] of marked.slice(1).entries()) {
    pen.globalAlpha = 0.3 + 0.6 * Math.min(Math.max(cosines[word * K + rank] / 1000, 0), 1);
    pen.lineWidth = j === pointed ? 3.5 : 1.5;
    pen.beginPath();
    pen.moveTo(across(word), down(word));
    pen.lineTo(across(j), down(j));
    pen.stroke();
  }
  pen.globalAlpha = 1;
  for (const i of marked.slice().reverse()) {
    taken.boxes.add([across(i) - 4, down(i) - 4, across(i) + 4, down(i) + 4]);
    dot(i, Math.max(radius(i), 3) + 1.5, colours.paper);
    dot(i, Math.max(radius(i), 3) + (i === pointed ? 2 : 0), i === word ? colours.mark : colours.accent);
  }
  if (word !== NONE) {
    pen.lineWidth = 2;
    pen.strokeStyle = colours.mark;
    pen.beginPath();
    pen.arc(across(word), down(word), radius(word) + 5, 0, 2 * Math.PI);
    pen.stroke();
  }
  const lean = marked.reduce((sum, i) => sum + Math.sign(across(i) - across(word)), 0);
  for (const i of marked) {
    const choices = sides(across(i), down(i), labelWidth(i, strong));
    if (i === word ? lean > 0 : across(i) < across(word)) choices.unshift(...choices.splice(1, 1)); // away from the lines
    const box = choices.find((one) => one[0] >= 0 && one[2] <= width && !taken.boxes.hits(one)) ?? choices.find((one) => !taken.boxes.hits(one));
    if (!box && i !== word) continue;
    taken.boxes.add(box ?? choices[0]);
    taken.labels.push([i, box ?? choices[0]]);
  }
  return taken;
}

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
