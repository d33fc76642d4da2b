// Elements, and moving among them by keys. Text of users and models is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `text` is its text, `onclick` and the like are heard, null and false are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A token as a label: blanks at its ends and control characters as visible signs; the unknown-word symbol in words. */
export function visible(token, isUnknown = false) {
  if (isUnknown) return "unknown word";
  if (token === "") return "∅";
  return withoutJoiners(token)
    .replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length))
    .replace(/[\u0000-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => `⟨U+${sign.charCodeAt(0).toString(16)}⟩`);
}

/** A token without the signs (U+FFED) by which the word tokenizer joins a punctuation mark to its neighbours. */
export function withoutJoiners(token) {
  return token.replace(/^\uffed|\uffed$/g, "") || token;
}

/** The same without the blank that only parts words. */
export function label(token, isUnknown = false) {
  return visible(token.trim() ? token.replace(/^ /, "") : token, isUnknown);
}

/** Text of unknown direction inside a line of ours. */
export function isolated(text, attributes = {}) {
  return make("bdi", { ...attributes, text });
}

/** One stop of the tabulator for a whole list, and arrow keys inside it; `items` gives it in the order of the eye. */
export function roving(container, items) {
  const choose = (item) => {
    for (const each of items()) each.tabIndex = each === item ? 0 : -1;
  };
  container.addEventListener("focusin", (event) => {
    const item = items().find((each) => each.contains(event.target));
    if (item) choose(item);
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.findIndex((each) => each.contains(document.activeElement));
    const last = all.length - 1;
    const goal = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
    if (at < 0 || !(event.key in goal) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    all[Math.min(Math.max(goal[event.key], 0), last)].focus();
  });
  return () => {
    const all = items();
    choose(all.find((each) => each.contains(document.activeElement)) ?? all[0]);
  };
}

/**
 * Run `update`, which may remove or move the focused element, without losing the keyboard focus. If the focus was on
 * one of `items()`, it stays on that element or moves to the element now at the same index, or to the last one, or
 * to `fallback` if none is left.
 */
export function keepFocus(items, update, fallback = null) {
  const focused = document.activeElement;
  const index = items().findIndex((item) => item.contains(focused));
  update();
  if (index < 0 || (focused.isConnected && document.activeElement === focused)) return;
  if (document.activeElement && document.activeElement !== document.body) return; // `update` has moved the focus itself
  const remaining = items();
  const target = remaining.includes(focused) ? focused : remaining[Math.min(index, remaining.length - 1)] ?? fallback;
  target?.focus({ preventScroll: true });
}

/** Wait until nothing has happened for a while; the last call counts. `cancel` drops a call that still waits. */
export function debounced(milliseconds, work) {
  let timer = 0;
  const run = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
  run.cancel = () => clearTimeout(timer);
  return run;
}

/** Only the latest call matters: an earlier one that still runs is cancelled, and its failure is not told. */
export function latest(work, fail) {
  let controller = null;
  const run = async (...given) => {
    controller?.abort();
    const own = (controller = new AbortController());
    try {
      await work(own.signal, ...given);
    } catch (error) {
      if (!own.signal.aborted) fail(error);
    }
  };
  run.stop = () => controller?.abort();
  return run;
}

/** A slider or number with its name and what it is set to. */
export function slider(name, { min, max, step, value, told = String, onchange }) {
  const output = make("output", { text: told(value) });
  const input = make("input", {
    type: "range", min, max, step, value, "aria-label": name, "aria-valuetext": told(value),
    oninput: () => {
      output.textContent = told(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
      onchange?.(Number(input.value));
    },
  });
  const field = make("label", { class: "slider" }, make("span", { text: name }), input, output);
  return { field, input, get value() { return Number(input.value); } };
}

/** A choice among named values. */
export function choice(name, options, onchange) {
  const input = make("select", { onchange: () => onchange?.(input.value) });
  const set = (values) => {
    const before = input.value;
    input.replaceChildren(...values.map(([value, text]) => make("option", { value, text })));
    if (values.some(([value]) => value === before)) input.value = before;
  };
  set(options);
  return { field: make("label", { class: "choice" }, make("span", { text: name }), input), input, set };
}
