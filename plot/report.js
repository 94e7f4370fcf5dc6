// Makes every table of the report sortable by its headings; without it they stay in their order.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  const key = (row, column) => {
    const cell = row.cells[column];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim();
  };
  const absent = (row, column) => row.cells[column].classList.contains("absent");
  const compare = (one, other) => typeof one === "number" && typeof other === "number"
    ? one - other
    : String(one).localeCompare(String(other), "en", { numeric: true });
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const way = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const each of headings) each.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", way);
      const sign = way === "ascending" ? 1 : -1;
      // What was not measured stays at the end either way.
      const rows = [...body.rows].sort((one, other) =>
        absent(one, column) - absent(other, column) ||
        sign * compare(key(one, column), key(other, column)));
      body.append(...rows);
    });
  });
}
