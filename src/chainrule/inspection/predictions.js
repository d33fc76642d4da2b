// Panel of a coloured text: shows the predictions at the hovered or focused token.
for (const root of document.querySelectorAll(".read-text")) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const panel = root.querySelector(".read-panel");
  const list = root.querySelector(".read-tokens");
  const tokens = [...list.querySelectorAll(".read-token")];
  let opened = -1;

  const make = (tag, parent, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const bits = (value) => (value === null ? "infinitely many" : (value / 100).toFixed(2));
  const share = (millionths) => {
    if (!data.is_probability) return (millionths / 1e6).toPrecision(3);
    return millionths < 100 ? "< 0.01 %" : `${(millionths / 1e4).toFixed(millionths < 1e5 ? 2 : 1)} %`;
  };

  const row = (body, at) => {
    const line = make("tr", body);
    const name = make("td", line);
    make("bdi", name, data.names[data.top[at]]).style.whiteSpace = "pre-wrap";
    make("td", line, share(data.p[at])).className = "read-number";
    const bar = make("span", make("td", line));
    bar.style.cssText = "display:block;height:.7em;border-radius:.15em;background:#0072b2;opacity:.75";
    bar.style.width = `${Math.min(12, (12 * data.p[at]) / 1e6).toFixed(2)}em`;
    return line;
  };

  const open = (index) => {
    if (index === opened) return;
    tokens[opened]?.setAttribute("aria-selected", "false");
    if (tokens[opened]) tokens[opened].style.boxShadow = "";
    tokens[opened]?.setAttribute("tabindex", "-1");
    opened = index;
    tokens[index].setAttribute("aria-selected", "true");
    tokens[index].setAttribute("tabindex", "0");
    tokens[index].style.boxShadow = "0 0 0 .12em currentColor";
    panel.replaceChildren();
    const head = make("p", panel);
    head.style.margin = "0 0 .3em";
    make("b", make("bdi", head), data.tokens[index]).style.whiteSpace = "pre-wrap";
    const kind = data.is_probability ? "" : " by score, not probability";
    make("span", head, `: ${bits(data.bits[index])} bits${kind}, rank ${data.rank[index].toLocaleString("en")} of ` +
      `${data.choices.toLocaleString("en")}` +
      (data.is_probability ? `; entropy ${bits(data.entropy[index])} bits.` : "."));
    const table = make("table", panel);
    table.className = "read-table";
    make("caption", table, "Top predictions").style.cssText = "text-align:start;opacity:.8";
    const body = make("tbody", table);
    for (let i = 0; i < data.width; i += 1) {
      const line = row(body, index * data.width + i);
      if (i === data.came[index]) {
        line.style.fontWeight = "700";
        line.title = "observed token";
      }
    }
  };

  if (tokens.length) {
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Tokens; arrow keys move from one to the next");
    panel.setAttribute("aria-live", "polite");
    panel.style.cssText = "margin-top:.8em;padding:.7em .9em;border:1px solid;border-color:color-mix(in srgb,currentColor 25%,transparent);border-radius:.3em;overflow-x:auto;min-height:17em";
    panel.hidden = false;
    tokens.forEach((token, index) => {
      token.setAttribute("role", "option");
      token.setAttribute("aria-selected", "false");
      token.setAttribute("tabindex", "-1");
      token.style.cursor = "pointer";
      token.addEventListener("pointerenter", () => open(index));
      token.addEventListener("focus", () => open(index));
    });
    open(0);
    list.addEventListener("keydown", (event) => {
      const isLeftward = getComputedStyle(tokens[opened]).direction === "rtl";
      const steps = { ArrowRight: isLeftward ? -1 : 1, ArrowLeft: isLeftward ? 1 : -1, ArrowDown: 1, ArrowUp: -1 };
      let next = opened + (steps[event.key] ?? 0);
      if (event.key === "Home") next = 0;
      if (event.key === "End") next = tokens.length - 1;
      if (next === opened || !tokens[next]) return;
      event.preventDefault();
      tokens[next].focus();
    });
  }
}
