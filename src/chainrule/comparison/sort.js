for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.value;
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a === b ? 0 : a - b);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    if (!head.title) head.title = button.textContent;
    button.setAttribute("aria-label", `Sort by: ${head.title}`);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      for (const body of table.tBodies)
        body.append(...[...body.rows].sort((a, b) => sign * compare(key(a, column), key(b, column))));
    });
  });
}
