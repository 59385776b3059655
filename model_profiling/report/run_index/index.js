"use strict";
// A cell is sorted by its data-value: as a number where both are, else as text; what is empty stands last.
function compare(a, b) {
  if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
  const numbers = [Number(a), Number(b)];
  return numbers.some(Number.isNaN) ? a.localeCompare(b) : numbers[0] - numbers[1];
}
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("th").forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const order = compare(value(a), value(b));
        return down && value(a) !== "" && value(b) !== "" ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
