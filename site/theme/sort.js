// A click on the head of a table sorts its rows: numbers by value, "-" last, words by letter.
"use strict";

function valueOf(row, column) {
  const words = row.cells[column] ? row.cells[column].textContent.trim() : "";
  const number = parseFloat(words.replace(/,/g, ""));
  return Number.isNaN(number) || /^[a-z]/i.test(words) ? words : number;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1;
  if (typeof b === "number") return 1;
  return a.localeCompare(b);
}

function sortBy(table, column, head) {
  const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column)));
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    if (!table.tHead || table.tBodies.length !== 1 || table.tBodies[0].rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      head.addEventListener("click", () => sortBy(table, column, head));
      head.addEventListener("keydown", (event) => {
        if (event.key === "Enter") sortBy(table, column, head);
      });
    });
  }
});
