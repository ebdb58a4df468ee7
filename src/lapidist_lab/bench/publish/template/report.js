"use strict";
// Tables that sort and filter, and charts whose values are told below the pointer or finger.

const filter = document.getElementById("filter"), told = document.getElementById("told");

// ---- filter: rows that have all the words, in them or in the title of their table ----

function matches(text, words) {
  return words.every((word) => text.includes(word));
}

function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let kept = 0;
  for (const box of document.querySelectorAll("details.case")) {
    const title = box.querySelector("summary").textContent.toLowerCase();
    let here = 0;
    for (const row of box.querySelectorAll("tbody tr")) {
      row.hidden = !matches(`${title} ${row.textContent.toLowerCase()}`, words);
      here += row.hidden ? 0 : 1;
    }
    box.hidden = here === 0;
    if (words.length) box.open = here > 0;
    kept += here;
  }
  const numbers = document.getElementById("numbers");
  if (words.length && numbers) numbers.open = true;
  told.textContent = words.length ? `${kept} rows` : "";
}

// ---- sort: by the number in a cell where there is one ----

function valueOf(row, column) {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent, number = parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(number) ? text : number;
}

function order(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function sort(head) {
  const column = head.cellIndex, body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort((a, b) => sign * order(valueOf(a, column), valueOf(b, column))));
}

// ---- values of charts ----

function tell(event) {
  const words = event.target.closest?.("[data-words]")?.dataset.words;
  if (words) told.textContent = words;
}

filter.addEventListener("input", narrow);
document.addEventListener("click", (event) => {
  const head = event.target.closest("th");
  if (head?.querySelector("button")) sort(head);
  const link = event.target.closest("nav a");
  const target = link && document.querySelector(link.getAttribute("href"));
  if (target instanceof HTMLDetailsElement) target.open = true;
  tell(event);
});
document.addEventListener("pointerover", tell);
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === filter) return;
  event.preventDefault();
  filter.focus();
});
