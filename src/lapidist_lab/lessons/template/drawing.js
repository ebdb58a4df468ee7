"use strict";
// Small functions that the panels draw with. `data` is the lesson as lesson.py collected it.

const data = JSON.parse(document.getElementById("data").textContent);
const LANES = 32;
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function shape(name, attributes, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

function titled(made, words) {
  made.append(shape("title", {}, words));
  return made;
}

function drawing(width, height, label) {
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
}

// Drawings are as wide as their place, so that letters keep their size on a phone.
const roomOf = (id) => Math.max(byId(id).clientWidth, 300);

const laneColour = (lane) => `hsl(${(lane * 360) / LANES} 62% 62%)`;

// A list of numbers kept as a base and a pattern; -1 stays -1.
function unpack([base, pattern]) {
  return data.patterns[pattern].map((value) => (value < 0 ? -1 : value + base));
}

const present = (moment, lane) => (moment.lanes / 2 ** lane) % 2 >= 1;

// The matrix of a numbered element, its row and column.
function placeOf(number) {
  if (number < 0) return null;
  const matrix = data.matrices.findLast((each) => each.start <= number);
  const offset = number - matrix.start;
  return { matrix: matrix.name, row: Math.floor(offset / matrix.columns), column: offset % matrix.columns };
}

// "A[3, 8..11]": elements of one lane in words.
function placeWords(numbers) {
  const known = numbers.filter((number) => number >= 0).map(placeOf);
  if (!known.length) return "no element of A, B or C";
  const [first, last] = [known[0], known[known.length - 1]];
  const span = (from, to) => (from === to ? `${from}` : `${from}..${to}`);
  return `${first.matrix}[${span(first.row, last.row)}, ${span(first.column, last.column)}]`;
}

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const percent = (share) => `${Math.round(100 * share)} %`;
