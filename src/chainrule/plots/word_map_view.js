"use strict";
// First of three files that share one scope: the data, and the visible part of the map.
// The data: words by frequency, their coordinates x and y, and K neighbours of each with cosines in thousandths.
const { words, counts, neighbors, cosines, ...places } = JSON.parse(document.getElementById("data").textContent);
let { x, y } = places;
const N = words.length;
const K = neighbors.length / N;
const byId = (id) => document.getElementById(id);
const canvas = byId("map");
const ctx = canvas.getContext("2d");
const LABEL = 16; // height of a label in pixels
const REACH = 14; // hit radius of a dot in pixels
const NONE = -1;

// ---- the view: map coordinates (x, y) are drawn at (x·scale + left, top − y·scale) ----
const view = { scale: 1, left: 0, top: 0 };
let whole = 1; // scale at which the whole map is visible
let width = 0;
let height = 0;
let chosen = NONE; // selected by click, key or search
let hovered = NONE;
let pointed = NONE; // hovered in the list of neighbours
let waiting = false;
let animation = 0;

const across = (i) => x[i] * view.scale + view.left;
const down = (i) => view.top - y[i] * view.scale;
const activeWord = () => (hovered !== NONE ? hovered : chosen);
const neighborsOf = (i) => neighbors.slice(i * K, i * K + K);
const bounded = (scale) => Math.min(Math.max(scale, whole / 2), whole * 80);
const folded = (word) => word.toLowerCase();
const number = new Intl.NumberFormat("en");

const low = (all) => all.reduce((a, b) => Math.min(a, b));
const high = (all) => all.reduce((a, b) => Math.max(a, b));

// Swap the axes of a wide map on a tall screen, or the reverse: the orientation is arbitrary.
function swapAxes() {
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
  setView({ scale, left: px + (view.left - px) * ratio, top: py + (view.top - py) * ratio });
}

function setView(target) {
  cancelAnimationFrame(animation);
  Object.assign(view, target);
  draw();
}

// Animate to a view, geometrically in scale; jump if reduced motion is preferred.
function animateTo(target) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return setView(target);
  cancelAnimationFrame(animation);
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
    if (t < 1) animation = requestAnimationFrame(step);
  };
  animation = requestAnimationFrame(step);
}

// Centre the word, zoomed in as far as its neighbours allow.
function viewOf(i) {
  const far = neighborsOf(i).map((j) => Math.max(Math.abs(x[j] - x[i]) / width, Math.abs(y[j] - y[i]) / height));
  const half = far.sort((a, b) => a - b)[Math.floor(far.length / 2)] || 0;
  const scale = Math.min(Math.max(0.3 / Math.max(half, 1e-9), whole * 3), whole * 8);
  return { scale, left: width / 2 - x[i] * scale, top: height / 2 + y[i] * scale };
}
