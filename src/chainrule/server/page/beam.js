// Beam search as a tree of kept, finished and pruned hypotheses.

import { ask, ending } from "/page/api.js";
import { percent } from "/page/bits.js";
import { choice, debounced, draw, isolated, keepFocus, label, latest, make, slider, withoutJoiners } from "/page/dom.js";

const LETTER = 8.5; // width of a character, in pixels
const GAP = 40; // between the columns
const LINE = 26;

export function beam(panel, state) {
  const again = debounced(150, () => update());
  const model = choice("model", [], again);
  const size = slider("beam size", { min: 1, max: 8, step: 1, value: 3, onchange: again });
  const length = slider("tokens", { min: 1, max: 20, step: 1, value: 6, onchange: again });
  const penalty = slider("length penalty", { min: 0, max: 2, step: 0.1, value: 0, format: (p) => p.toFixed(1), onchange: again });
  const frame = make("div", { class: "tree", tabindex: 0, role: "group", "aria-label": "beam-search tree; navigate with the arrow keys" });
  const detail = make("p", { class: "detail", "aria-live": "polite" });
  const found = make("ol", { class: "found" });
  panel.append(
    make("p", { class: "lead", text: "At each length, the best hypotheses are kept (solid) and the others are pruned (faded); the thick path is the best hypothesis. Line width shows the probability of the token." }),
    make("div", { class: "controls" }, model.field, size.field, length.field, penalty.field),
    frame, detail, found,
  );

  const load = latest(async (signal) => {
    const body = { model: model.input.value, prompt: ending(state.text), beam_size: size.value, max_tokens: length.value, length_penalty: penalty.value };
    const answer = await ask("/v1/beam", body, signal);
    detail.replaceChildren("Hover over a token, or navigate with the arrow keys.");
    keepFocus(() => [...frame.querySelectorAll(".node")], () => frame.replaceChildren(tree(answer, detail)), frame);
    found.replaceChildren(...answer.best.map((each) => make("li", {},
      isolated(each.text.trim() || "(the line ends here)", { class: "token" }),
      ` log p ${nats(each.log_prob)} (${percent(Math.exp(each.log_prob))})${each.is_finished ? ", ended" : ""}`)));
  }, state.fail);

  async function update() {
    model.set(state.chosen.map((name) => [name, name]));
    await load();
  }
  return { update };
}

/** Tree layout: one row per leaf, parents centred on their children. */
function layout(nodes) {
  const children = nodes.map(() => []);
  const roots = [];
  nodes.forEach((node, i) => (node.parent === null ? roots : children[node.parent]).push(i));
  const places = nodes.map(() => ({ x: 0, y: 0 }));
  let leaf = 0;
  const put = (i, depth) => {
    places[i].x = depth;
    if (!children[i].length) places[i].y = leaf++;
    else {
      for (const child of children[i]) put(child, depth + 1);
      places[i].y = (places[children[i][0]].y + places[children[i].at(-1)].y) / 2;
    }
  };
  for (const root of roots) put(root, 1);
  return { places, children, roots, leaves: leaf };
}

function tree({ nodes, best, prompt }, detail) {
  const { places, children, roots, leaves } = layout(nodes);
  const path = new Set();
  for (let at = best[0]?.node ?? null; at !== null; at = nodes[at].parent) path.add(at);
  const alive = new Set(path); // nodes on the path of a final hypothesis
  for (const each of best) for (let at = each.node; at !== null; at = nodes[at].parent) alive.add(at);
  const deepest = Math.max(1, ...places.map((place) => place.x));
  const tail = prompt.split("\n").at(-1).slice(-9);
  const given = tail ? `…${tail}` : "<s>";
  const labels = nodes.map((node) => shortened(node.token === "</s>" ? "⏎" : label(node.text || node.token)));
  const columns = [4]; // x position of each column
  for (let depth = 0; depth <= deepest; depth += 1) {
    const widest = Math.max(...labels.filter((_, i) => places[i].x === depth).map((each) => each.length), depth ? 1 : given.length);
    columns.push(columns[depth] + widest * LETTER + GAP);
  }
  const [width, height] = [columns.at(-1), Math.max(leaves, 1) * LINE + 16];
  const x = (i) => columns[i === null ? 0 : places[i].x];
  const end = (i) => x(i) + (i === null ? given : labels[i]).length * LETTER + 4;
  const middle = roots.length ? (places[roots[0]].y + places[roots.at(-1)].y) / 2 : 0;
  const y = (i) => (i === null ? middle : places[i].y) * LINE + 20;
  const edges = nodes.map((node, i) => {
    const [x1, y1, x2, y2] = [end(node.parent), y(node.parent), x(i) - 5, y(i)];
    const turn = (x1 + x2) / 2;
    const edge = draw("path", { class: look(node, i, path, alive), d: `M${x1} ${y1}C${turn} ${y1} ${turn} ${y2} ${x2} ${y2}` });
    edge.style.strokeWidth = `${(path.has(i) ? 3 : 1) + 4 * Math.exp(node.log_prob)}px`;
    return edge;
  });
  const elements = nodes.map((node, i) => {
    const name = draw("text", { x: x(i), y: y(i) + 5, text: labels[i] });
    const words = `${withoutJoiners(node.token)}: ${percent(Math.exp(node.log_prob))}, log p so far ${nats(node.score)}, ${node.fate}`;
    const element = draw("g", { class: `node ${look(node, i, path, alive)}`, tabindex: i === roots[0] ? 0 : -1, role: "img", "aria-label": words }, name);
    const tell = () => detail.replaceChildren(isolated(label(node.token), { class: "token strong" }),
      ` ${percent(Math.exp(node.log_prob))}; total log p ${nats(node.score)}; ${fates[node.fate]}.`);
    element.addEventListener("focus", tell);
    element.addEventListener("pointerenter", tell);
    element.addEventListener("keydown", (event) => {
      const level = nodes.map((_, k) => k).filter((k) => places[k].x === places[i].x).sort((a, b) => places[a].y - places[b].y);
      const at = level.indexOf(i);
      const goal = { ArrowLeft: node.parent, ArrowRight: children[i][0], ArrowUp: level[at - 1], ArrowDown: level[at + 1] }[event.key];
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      if (goal === null || goal === undefined) return;
      elements.forEach((each, k) => each.setAttribute("tabindex", k === goal ? 0 : -1));
      elements[goal].focus();
    });
    return element;
  });
  const root = draw("text", { x: 4, y: y(null) + 5, class: "given", text: given });
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, ...edges, root, ...elements);
}

const fates = { kept: "kept", finished: "finished", pruned: "pruned" };

function look(node, i, path, alive) {
  if (path.has(i)) return "best";
  return node.fate === "pruned" ? "pruned" : alive.has(i) ? "alive" : "lost";
}

const nats = (value) => `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)} nats`;

function shortened(text) {
  return text.length > 10 ? `${text.slice(0, 9)}…` : text;
}
