// Text generated token by token; any alternative of a token can be chosen to continue from.

import { ending, stream, unknownSymbol } from "/page/api.js";
import { bitsOf, depth, percent, told } from "/page/bits.js";
import { choice, isolated, label, latest, make, roving, slider } from "/page/dom.js";

const ALTERNATIVES = 8;

export function generation(panel, state) {
  const model = choice("model", []);
  const temperature = slider("temperature", { min: 0, max: 2, step: 0.05, value: 1, format: (T) => T.toFixed(2) });
  const topP = slider("top-p", { min: 0.05, max: 1, step: 0.01, value: 0.95, format: (p) => p.toFixed(2) });
  const length = slider("tokens", { min: 5, max: 200, step: 5, value: 40 });
  const start = make("button", { type: "button", class: "primary", text: "Generate", onclick: () => go(true) });
  const stop = make("button", { type: "button", text: "Stop", disabled: true, onclick: () => run.stop() });
  const take = make("button", { type: "button", text: "Use as my text", disabled: true, onclick: () => state.setText(prompt + written(steps)) });
  const output = make("div", { class: "reading large", role: "listbox", "aria-label": "generated tokens" });
  const chosen = make("div", { class: "alternatives card", hidden: true });
  const status = make("p", { class: "figures", role: "status" });
  panel.append(
    make("p", { class: "lead", text: "The model continues your text. Click a token to see the alternatives at its position, and click one to continue from it." }),
    make("div", { class: "controls" }, model.field, temperature.field, topP.field, length.field),
    make("div", { class: "row" }, start, stop, take),
    make("div", { class: "card" }, output),
    status,
    chosen,
  );
  let prompt = "";
  let unknown = null; // the model's unknown-word token
  const isUnknown = (token) => unknown !== null && token.trim() === unknown;
  let turn = 0; // number of the current run
  let steps = []; // {token, logProb, top: [[token, logProb]], element}
  const settle = roving(output, () => steps.map((step) => step.element));

  const run = latest(async (signal) => {
    status.textContent = "generating …";
    let finish = "length";
    unknown = await unknownSymbol(model.input.value, signal);
    const body = {
      model: model.input.value, prompt: prompt + written(steps), max_tokens: length.value, temperature: temperature.value,
      logprobs: ALTERNATIVES, ...(topP.value < 1 && { top_p: topP.value }),
    };
    for await (const part of stream("/v1/completions", body, signal)) {
      const [answer] = part.choices ?? [];
      if (!answer) continue;
      read(answer.logprobs);
      finish = answer.finish_reason ?? finish;
    }
    status.textContent = summary(finish);
  }, (error) => {
    status.textContent = error.message;
    state.fail(error);
  });

  function go(isFresh) {
    if (isFresh) {
      prompt = ending(state.text);
      steps = [];
      output.replaceChildren(make("div", { dir: "auto", role: "presentation" }, make("span", { class: "given", text: prompt })));
    }
    close();
    take.disabled = false;
    stop.disabled = false;
    const own = (turn += 1);
    run().then(() => {
      if (own !== turn) return;
      if (document.activeElement === stop) start.focus(); // a disabled button would lose the focus
      stop.disabled = true;
      if (status.textContent === "generating …") status.textContent = summary("stopped");
    });
  }

  function read(logprobs) {
    if (!logprobs) return;
    logprobs.tokens.forEach((token, i) => {
      const top = Object.entries(logprobs.top_logprobs?.[i] ?? {}).sort((a, b) => b[1] - a[1]);
      add(token, logprobs.token_logprobs[i], top);
    });
  }

  function add(token, logProb, top) {
    const bits = bitsOf(logProb);
    if (!steps.length && token.startsWith(" ") && prompt.endsWith(" ")) {
      prompt = prompt.trimEnd(); // the blank is part of the token
      output.querySelector(".given").textContent = prompt;
    }
    const isEnd = token === "</s>";
    const name = isUnknown(token) ? "unknown word" : isEnd ? "end" : token;
    const text = isUnknown(token) ? token.replace(unknown, "[unknown word]") : isEnd ? "⏎" : token;
    const element = make("span", {
      class: isEnd ? "token-text end" : "token-text", role: "option", tabindex: -1, title: told(bits), text,
      "aria-label": `${name}, ${told(bits)}`, "aria-haspopup": "true",
      onclick: () => open(step), onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(step, true); }
        if (event.key === "Escape") close();
      },
    });
    element.style.setProperty("--depth", depth(bits).toFixed(3));
    const step = { token, logProb, top, element };
    steps.push(step);
    output.lastElementChild.append(element);
    settle();
  }

  function open(step, isByKey = false) {
    for (const each of steps) each.element.setAttribute("aria-selected", String(each === step));
    const all = step.top.some(([token]) => token === step.token) ? step.top : [...step.top, [step.token, step.logProb]];
    const most = Math.exp(Math.max(...all.map(([, logProb]) => logProb)));
    const buttons = all.map(([token, logProb]) => {
      const p = Math.exp(logProb);
      const fill = make("span", { class: "own" });
      fill.style.width = `${(100 * p) / most}%`;
      return make("button", {
        type: "button", class: token === step.token ? "bar flat came" : "bar flat", onclick: () => goOn(step, token, logProb),
        "aria-label": `continue with ${isUnknown(token) ? "an unknown word" : token}, ${percent(p)}${token === step.token ? ", generated" : ""}`,
      }, isolated(label(token, isUnknown(token)), { class: "token" }), make("span", { class: "track", "aria-hidden": "true" }, fill), make("span", { class: "number", text: percent(p) }));
    });
    const list = make("div", { role: "group", "aria-label": "alternatives at this position", onkeydown: (event) => {
      if (event.key === "Escape") { close(); step.element.focus(); }
    } }, ...buttons);
    roving(list, () => buttons)();
    chosen.replaceChildren(make("h3", { text: "Alternatives" }), list);
    chosen.hidden = false;
    if (isByKey) buttons[0].focus();
  }

  function goOn(step, token, logProb) {
    run.stop();
    const at = steps.indexOf(step);
    for (const each of steps.slice(at)) each.element.remove();
    const { top } = step;
    steps = steps.slice(0, at);
    add(token, logProb, top);
    steps.at(-1).element.classList.add("forced");
    steps.at(-1).element.focus(); // the alternatives are about to be removed
    close();
    if (token === "</s>") status.textContent = "the line ends here.";
    else go(false);
  }

  function close() {
    chosen.hidden = true;
    chosen.replaceChildren();
  }

  function summary(finish) {
    const bits = steps.reduce((sum, step) => sum + bitsOf(step.logProb), 0);
    const why = { stop: "the model ended the line", length: "maximum length reached", stopped: "stopped" }[finish];
    return `${steps.length} tokens, ${told(bits, 1)} under the model; ${why}.`;
  }

  return {
    update() {
      model.set(state.chosen.map((name) => [name, name]));
    },
    leave: () => run.stop(),
  };
}

function written(steps) {
  return steps.map((step) => (step.token === "</s>" ? "" : step.token)).join("");
}
