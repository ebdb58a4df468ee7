// A, B and C as the textbook has them: B above C, A left of it; the part that the watched block touches.

const GAP = 0.06, EDGE = 4, HIGHEST = 430;

function layout() {
  const [bm, bn] = data.tile, k = data.shape[2];
  const gap = GAP * Math.max(bm, bn, k), columns = k + gap + bn, rows = k + gap + bm;
  const width = roomOf("where"), unit = Math.min((width - 2 * EDGE) / columns, HIGHEST / rows);
  return { bm, bn, k, unit, width, height: rows * unit + 34, A: [0, k + gap], B: [k + gap, 0], C: [k + gap, k + gap] };
}

let spot = null;

function at(matrix, row, column) {
  const [x, y] = spot[matrix];
  return [EDGE + (x + column) * spot.unit, 20 + (y + row) * spot.unit];
}

function area(matrix, row, column, rows, columns, css, least = 0) {
  const [x, y] = at(matrix, row, column);
  return shape("rect", { x, y, width: Math.max(columns * spot.unit, least), height: Math.max(rows * spot.unit, least), class: css });
}

// The block's tile of C at each moment of a warp: its first row and column. A block that stays has several.
const origins = new Map();

function originOf(warp, place) {
  if (!origins.has(warp)) {
    let [row, column] = [0, 0];
    const [bm, bn] = data.tile, floor = (value, step) => Math.floor(value / step) * step;
    origins.set(warp, warp.moments.map((moment) => {
      const boxes = (moment.boxes || []).map(([matrix, first, second]) => ({ matrix: data.matrices[matrix].name, row: first, column: second }));
      const request = moment.places ? placeOf(unpack(moment.places).find((number) => number >= 0) ?? -1) : null;
      for (const found of request ? [request] : boxes) {
        if (found.matrix !== "B") row = floor(found.row, bm);
        if (found.matrix !== "A") column = floor(found.column, bn);
      }
      return [row, column];
    }));
  }
  return origins.get(warp)[place];
}

// The place as seen from the corner of the block's tile.
const local = (place) => ({ ...place, row: place.row - (place.matrix === "B" ? 0 : spot.origin[0]), column: place.column - (place.matrix === "A" ? 0 : spot.origin[1]) });
const shownRuns = (numbers) => runs(numbers).map(local).filter(inView);

const inView = (place) => place.row >= 0 && place.column >= 0 && place.row < (place.matrix === "B" ? spot.k : spot.bm) && place.column < (place.matrix === "A" ? spot.k : spot.bn);

// Elements joined along rows: [row, column, columns].
function runs(numbers) {
  const found = [];
  for (const number of [...new Set(numbers)].filter((each) => each >= 0).sort((a, b) => a - b)) {
    const place = placeOf(number), last = found[found.length - 1];
    if (last && last.matrix === place.matrix && last.row === place.row && last.column + last.columns === place.column) last.columns++;
    else found.push({ ...place, columns: 1 });
  }
  return found;
}

function ownedBy(warp, lane) {
  const kept = warp.owns[lane];
  return kept ? unpack(kept) : [];
}

function drawWhere(warp, moment, chosen) {
  spot = { ...layout(), origin: originOf(warp, state.moment) };
  const svg = drawing(spot.width, spot.height, "elements of A, B and C");
  const names = { A: `A: ${spot.bm} of ${data.shape[0]} rows, k →`, B: "B: k ↓", C: `C: ${spot.bm} x ${spot.bn}` };
  const extents = { A: [spot.bm, spot.k], B: [spot.k, spot.bn], C: [spot.bm, spot.bn] };
  for (const [name, [rows, columns]] of Object.entries(extents)) {
    svg.append(area(name, 0, 0, rows, columns, "matrix"));
    const [x, y] = at(name, name === "B" ? 0 : rows, 0);
    svg.append(shape("text", { x, y: name === "B" ? y - 6 : y + 13 }, names[name]));
  }
  drawGrid(svg);
  drawOwned(svg, warp, chosen);
  for (const box of moment.boxes || []) drawBox(svg, box);
  if (moment.places) drawLanes(svg, moment, chosen);
  byId("where").replaceChildren(svg);
  const whose = warp.owns.length ? `Shaded in C: what warp ${warp.warp} stores. Outlined: the elements of lane ${chosen}, and the rows of A and columns of B that they need.` : "";
  byId("where-key").textContent = `Coloured: what this moment touches, a colour a lane. ${whose}`;
}

// In the empty corner: where the block's tile lies in all of C.
function drawGrid(svg) {
  const [m, n] = data.shape, room = Math.min(spot.C[0] * spot.unit * 0.5, spot.C[1] * spot.unit - 60, 130);
  if (room < 30) return;
  const scale = room / Math.max(m, n), [bm, bn] = data.tile;
  svg.append(shape("text", { x: EDGE, y: 14 }, `all of C, ${m} x ${n}`));
  for (let row = 0; row < m; row += bm)
    for (let column = 0; column < n; column += bn)
      svg.append(shape("rect", { x: EDGE + column * scale, y: 20 + row * scale, width: bn * scale - 1, height: bm * scale - 1, class: row === spot.origin[0] && column === spot.origin[1] ? "box" : "matrix" }));
  svg.append(shape("text", { x: EDGE, y: 36 + m * scale, class: "muted" }, "the watched block's tile"));
}

function drawOwned(svg, warp, chosen) {
  for (let lane = 0; lane < warp.owns.length; lane++)
    for (const run of shownRuns(ownedBy(warp, lane))) svg.append(area("C", run.row, run.column, 1, run.columns, "owned"));
  const mine = warp.owns.length ? shownRuns(ownedBy(warp, chosen)) : [];
  for (const row of new Set(mine.map((run) => run.row))) svg.append(area("A", row, 0, 1, spot.k, "band", 1));
  const columns = new Set(mine.flatMap((run) => [...Array(run.columns).keys()].map((n) => run.column + n)));
  for (const column of columns) svg.append(area("B", 0, column, spot.k, 1, "band", 1));
  for (const run of mine) {
    const made = area("C", run.row, run.column, 1, run.columns, "chosen", 2);
    made.setAttribute("fill", laneColour(chosen));
    svg.append(made);
  }
}

function drawBox(svg, [matrix, row, column, rows, columns]) {
  const { name } = data.matrices[matrix], inside = local({ matrix: name, row, column });
  svg.append(titled(area(name, inside.row, inside.column, rows, columns, "box", 2), boxWords([matrix, row, column, rows, columns])));
}

function drawLanes(svg, moment, chosen) {
  const places = unpack(moment.places), each = places.length / LANES;
  const order = [...Array(LANES).keys()].sort((a, b) => (a === chosen) - (b === chosen));
  for (const lane of order.filter((number) => present(moment, number))) {
    const own = places.slice(lane * each, (lane + 1) * each);
    for (const run of shownRuns(own)) {
      const made = area(run.matrix, run.row, run.column, 1, run.columns, lane === chosen ? "chosen" : "touched", 3);
      made.setAttribute("fill", laneColour(lane));
      made.setAttribute("data-lane", lane);
      svg.append(titled(made, `lane ${lane}: ${placeWords(own)}`));
    }
  }
}
