// DOM helpers and keyboard navigation. Text of users and models is only set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: `text` sets its text, `on…` adds a listener, null and false attributes are omitted. */
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

/** Label of a token: leading and trailing blanks and control characters become visible symbols. */
export function visible(token, isUnknown = false) {
  if (isUnknown) return "unknown word";
  if (token === "") return "∅";
  return withoutJoiners(token)
    .replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length))
    .replace(/[\u0000-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => `⟨U+${sign.charCodeAt(0).toString(16)}⟩`);
}

/** Remove the joiners (U+FFED) by which the word tokenizer attaches punctuation to its neighbours. */
export function withoutJoiners(token) {
  return token.replace(/^\uffed|\uffed$/g, "") || token;
}

/** Like `visible`, without the blank that separates words. */
export function label(token, isUnknown = false) {
  return visible(token.trim() ? token.replace(/^ /, "") : token, isUnknown);
}

/** Text of unknown writing direction, isolated from the text around it. */
export function isolated(text, attributes = {}) {
  return make("bdi", { ...attributes, text });
}

/** Roving tabindex: one tab stop for a list, arrow keys inside it; `items` returns its elements in visual order. */
export function roving(container, items) {
  const choose = (item) => {
    for (const other of items()) other.tabIndex = other === item ? 0 : -1;
  };
  container.addEventListener("focusin", (event) => {
    const item = items().find((element) => element.contains(event.target));
    if (item) choose(item);
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.findIndex((element) => element.contains(document.activeElement));
    const last = all.length - 1;
    const goal = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
    if (at < 0 || !(event.key in goal) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    all[Math.min(Math.max(goal[event.key], 0), last)].focus();
  });
  return () => {
    const all = items();
    choose(all.find((element) => element.contains(document.activeElement)) ?? all[0]);
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

/** Debounce: only the last call within the interval runs. `cancel` drops a pending call. */
export function debounced(milliseconds, work) {
  let timer = 0;
  const run = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), milliseconds);
  };
  run.cancel = () => clearTimeout(timer);
  return run;
}

/** Run only the latest call: an earlier one is aborted, and its error is ignored. */
export function latest(work, fail) {
  let controller = null;
  const run = async (...args) => {
    controller?.abort();
    const current = (controller = new AbortController());
    try {
      await work(current.signal, ...args);
    } catch (error) {
      if (!current.signal.aborted) fail(error);
    }
  };
  run.stop = () => controller?.abort();
  return run;
}

/** A labelled slider with its formatted value. */
export function slider(name, { min, max, step, value, format = String, onchange }) {
  const output = make("output", { text: format(value) });
  const input = make("input", {
    type: "range", min, max, step, value, "aria-label": name, "aria-valuetext": format(value),
    oninput: () => {
      output.textContent = format(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
      onchange?.(Number(input.value));
    },
  });
  const field = make("label", { class: "slider" }, make("span", { text: name }), input, output);
  return { field, input, get value() { return Number(input.value); } };
}

/** A labelled select element. */
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
