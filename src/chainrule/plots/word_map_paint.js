// Second of three files that share one scope: drawing of dots, lines and labels.

// ---- labels: frequent words first, each beside its dot if there is room ----
const ordinary = "12.5px system-ui, sans-serif";
const strong = "600 14px system-ui, sans-serif";
const widths = { [ordinary]: new Float32Array(N), [strong]: new Float32Array(N) };

function labelWidth(i, font) {
  if (!widths[font][i]) {
    ctx.font = font;
    widths[font][i] = ctx.measureText(words[i]).width + 4;
  }
  return widths[font][i];
}

// Boxes in a grid, so that only nearby ones are compared.
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

// The label layout depends on the scale alone, so labels stay in place while panning.
const layout = { scale: 0, side: new Int8Array(N) };
function layoutLabels() {
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

const drawnLabels = []; // [word, box] of every drawn label, for hit testing
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
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.arc(across(i), down(i), size, 0, 2 * Math.PI);
  ctx.fill();
}

function write(i, box, font, colour) {
  ctx.font = font;
  ctx.strokeStyle = colours.paper;
  ctx.fillStyle = colour;
  ctx.strokeText(words[i], box[0] + 2, (box[1] + box[3]) / 2 + 0.5);
  ctx.fillText(words[i], box[0] + 2, (box[1] + box[3]) / 2 + 0.5);
  drawnLabels.push([i, box]);
}

const isInside = (i, margin) => across(i) > -margin && across(i) < width + margin && down(i) > -margin && down(i) < height + margin;

function paint() {
  const ratio = devicePixelRatio || 1;
  const word = activeWord();
  const marked = word === NONE ? [] : [word, ...neighborsOf(word)];
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = colours.paper;
  ctx.fillRect(0, 0, width, height);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.lineJoin = "round";
  ctx.lineWidth = 3;
  drawnLabels.length = 0;
  ctx.globalAlpha = word === NONE ? 0.6 : 0.35;
  for (let i = N - 1; i >= 0; i--) if (isInside(i, 9)) dot(i, radius(i), colours.dot);
  ctx.globalAlpha = 1;
  const taken = paintLines(word, marked);
  layoutLabels();
  ctx.lineWidth = 3;
  for (let i = N - 1; i >= 0; i--) {
    if (layout.side[i] === NONE || marked.includes(i) || !isInside(i, 200)) continue;
    const box = sides(across(i), down(i), labelWidth(i, ordinary))[layout.side[i]];
    if (!taken.boxes.hits(box)) write(i, box, ordinary, word === NONE ? colours.ink : colours.soft);
  }
  for (const [i, box] of taken.labels.reverse()) write(i, box, strong, i === word ? colours.mark : colours.accent);
}

// Draw lines to the neighbours and their dots; reserve room for their labels, which are on top.
function paintLines(word, marked) {
  const taken = { boxes: new Boxes(), labels: [] };
  ctx.strokeStyle = colours.accent;
  for (const [rank, j] of marked.slice(1).entries()) {
    ctx.globalAlpha = 0.3 + 0.6 * Math.min(Math.max(cosines[word * K + rank] / 1000, 0), 1);
    ctx.lineWidth = j === pointed ? 3.5 : 1.5;
    ctx.beginPath();
    ctx.moveTo(across(word), down(word));
    ctx.lineTo(across(j), down(j));
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  for (const i of marked.slice().reverse()) {
    taken.boxes.add([across(i) - 4, down(i) - 4, across(i) + 4, down(i) + 4]);
    dot(i, Math.max(radius(i), 3) + 1.5, colours.paper);
    dot(i, Math.max(radius(i), 3) + (i === pointed ? 2 : 0), i === word ? colours.mark : colours.accent);
  }
  if (word !== NONE) {
    ctx.lineWidth = 2;
    ctx.strokeStyle = colours.mark;
    ctx.beginPath();
    ctx.arc(across(word), down(word), radius(word) + 5, 0, 2 * Math.PI);
    ctx.stroke();
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
