// The page: model selection, text, views, colour theme and API key.

import { ask, onKeyWanted } from "/page/api.js";
import { beam } from "/page/beam.js";
import { contextView } from "/page/context.js";
import { distribution } from "/page/distribution.js";
import { debounced, isolated, make } from "/page/dom.js";
import { generation } from "/page/generation.js";
import { shannon } from "/page/shannon.js";
import { surprisal } from "/page/surprisal.js";

const MAX_MODELS = 3;
const MAX_CHARACTERS = 20000; // longer texts are truncated, so that typing stays fast
const SENT = 4000;
const by = (id) => document.getElementById(id);

const state = {
  models: [],
  chosen: [],
  text: "",
  fail(error) {
    by("problem").textContent = error.message || "the server does not respond";
    by("problem").hidden = false;
  },
  setText(text) {
    by("text").value = text;
    read();
    changed();
  },
  /** Append a token to the text, or end the line. */
  write(token) {
    const isGlued = !state.text || /\s$/.test(state.text);
    state.setText(state.text + (token === "</s>" ? "\n" : isGlued ? token.replace(/^ /, "") : token));
  },
};

const views = {
  next: distribution(by("panel-next"), state),
  surprisal: surprisal(by("panel-surprisal"), state),
  generate: generation(by("panel-generate"), state),
  beam: beam(by("panel-beam"), state),
  shannon: shannon(by("panel-shannon"), state),
  context: contextView(by("panel-context"), state),
};
let current = "next";

function update() {
  changed.cancel(); // a pending update would render the same response a second time
  by("problem").hidden = true;
  if (state.chosen.length) views[current].update();
}
const changed = debounced(120, update);

function read() {
  const box = by("text");
  const length = box.value.length;
  if (length > MAX_CHARACTERS) box.value = box.value.slice(0, MAX_CHARACTERS);
  state.text = box.value;
  const notes = [];
  if (length > MAX_CHARACTERS) notes.push(`The text was truncated to its first ${MAX_CHARACTERS.toLocaleString("en")} characters.`);
  if (state.text.length > SENT) notes.push(`${SENT.toLocaleString("en")} characters are used: the last ones for the next token, the first ones elsewhere.`);
  by("note").textContent = notes.join(" ");
}

function watchText() {
  const box = by("text");
  box.addEventListener("input", () => { read(); changed(); });
  const take = (event, data) => {
    const text = data?.getData("text/plain") ?? "";
    if (text.length <= MAX_CHARACTERS) return;
    event.preventDefault(); // a megabyte of text would make every keystroke slow
    box.value = text.slice(0, MAX_CHARACTERS + 1); // one too many, so that the note appears
    read();
    changed();
  };
  box.addEventListener("paste", (event) => take(event, event.clipboardData));
  box.addEventListener("drop", (event) => take(event, event.dataTransfer));
}

function watchTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const open = (tab) => {
    views[current].leave?.();
    current = tab.id.replace("tab-", "");
    for (const other of tabs) {
      const isOpen = other === tab;
      other.setAttribute("aria-selected", String(isOpen));
      other.tabIndex = isOpen ? 0 : -1;
      by(other.getAttribute("aria-controls")).hidden = !isOpen;
    }
    by("writing").hidden = current === "shannon";
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    update();
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const goal = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (goal === undefined) return;
      event.preventDefault();
      const next = tabs[(goal + tabs.length) % tabs.length];
      next.focus();
      open(next);
    });
  });
}

function showModels() {
  const boxes = state.models.map((name) => {
    const box = make("input", { type: "checkbox", value: name, checked: state.chosen.includes(name), onchange: () => {
      state.chosen = boxes.filter((input) => input.checked).map((input) => input.value);
      limit();
      changed();
    } });
    return box;
  });
  const limit = () => {
    for (const box of boxes) box.disabled = !box.checked && state.chosen.length >= MAX_MODELS;
    for (const box of boxes) if (box.checked && state.chosen.length === 1) box.disabled = true; // at least one model stays selected
  };
  by("models").append(...boxes.map((box) => make("label", { class: "chip" }, box, isolated(box.value))));
  limit();
}

function watchTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = by("theme");
  const show = () => {
    const isDark = (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    button.textContent = isDark ? "Light" : "Dark";
    button.setAttribute("aria-label", `change to ${isDark ? "light" : "dark"} colours`);
    return isDark;
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = show() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();
}

onKeyWanted((wasWrong) => new Promise((resolve) => {
  const form = by("key-form");
  by("key-words").textContent = wasWrong ? "Wrong API key; try again:" : "This server requires an API key:";
  form.hidden = false;
  by("key").focus();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    form.hidden = true;
    by("text").focus();
    resolve(by("key").value.trim());
    by("key").value = "";
  }, { once: true });
}));

watchTheme();
watchText();
watchTabs();
try {
  state.models = (await ask("/v1/models")).data.map((model) => model.id);
  state.chosen = state.models.slice(0, MAX_MODELS);
  showModels();
  read();
  update();
} catch (error) {
  state.fail(error);
}
document.documentElement.dataset.ready = "true";
