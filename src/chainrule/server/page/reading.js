// Shared by the views of the whole text: one card per model, with selectable tokens.

import { beginning, context } from "/page/api.js";
import { keepFocus, latest, make, roving } from "/page/dom.js";

/** A view of the text; `cards` creates the cards of [{ model, found } or { model, error }]. */
export function readings(panel, state, lead, cards) {
  const stack = make("div", { class: "stack" });
  panel.append(make("p", { class: "lead", text: lead }), stack);

  /** Replace all cards; the focus stays in the card at the same position, or moves to the text box. */
  function replaceCards(elements) {
    const position = [...stack.children].findIndex((card) => card.contains(document.activeElement));
    const items = () => [...(stack.children[Math.min(position, stack.children.length - 1)]?.querySelectorAll("[tabindex], select") ?? [])];
    keepFocus(items, () => stack.replaceChildren(...elements), document.getElementById("text"));
  }

  const update = latest(async (signal) => {
    const text = beginning(state.text);
    if (!text) {
      replaceCards([make("p", { class: "empty", text: "Write something above." })]);
      return;
    }
    const read = async (model) => {
      try {
        return { model, found: await context(model, text, signal) };
      } catch (error) {
        if (signal.aborted) throw error;
        return { model, error };
      }
    };
    replaceCards(cards(await Promise.all(state.chosen.map(read))));
  }, state.fail);
  return { update };
}

/** A token with a background colour of this depth. */
export function tokenSpan(group, deep, remark) {
  const text = group.isEnd ? "⏎" : group.piece;
  const span = make("span", { class: group.isEnd ? "token-text end" : "token-text", role: "option", tabindex: -1, title: remark, text });
  span.style.setProperty("--depth", deep.toFixed(3));
  span.setAttribute("aria-label", `${group.isEnd ? "end of line" : group.piece}, ${remark}`);
  if (!Number.isFinite(group.bits)) span.classList.add("impossible");
  return span;
}

/** Tokens in lines; `tell` is called with the index of the token that is hovered or focused. */
export function tokenList(spans, groups, label, tell) {
  const list = make("div", { class: "reading", role: "listbox", "aria-label": label });
  let line = make("div", { dir: "auto", role: "presentation" });
  list.append(line);
  spans.forEach((span, at) => {
    line.append(span);
    const choose = () => {
      for (const other of spans) other.setAttribute("aria-selected", String(other === span));
      tell(at);
    };
    span.addEventListener("focus", choose);
    span.addEventListener("pointerenter", choose);
    span.addEventListener("click", () => span.focus());
    if (groups[at].isEnd && at + 1 < spans.length) list.append((line = make("div", { dir: "auto", role: "presentation" })));
  });
  roving(list, () => spans)();
  return list;
}
