// How memory serves a request: global memory by sectors, shared memory by banks and turns.

const WORD = 4, BANKS = 32, SECTOR = 32, LINE = 128;

// Sizes of the grid: 32 columns and so many rows, between its names and the edge.
function grid(rows, left, spare, place) {
  const room = roomOf(place), small = room < 600;
  return { left, cell: (room - left - spare - 2) / 32, row: rows > 12 ? 13 : 20, width: room, css: small || rows > 12 ? "tiny" : "" };
}

// Requests as words: which lanes want which word, and in which turn they get it.
function wantedWords(moment) {
  const at = unpack(moment.at), turn = moment.turn ? unpack(moment.turn) : null, words = new Map();
  const count = Math.max(Math.floor(moment.size / WORD), 1);
  for (let lane = 0; lane < LANES; lane++) {
    if (!present(moment, lane)) continue;
    for (let part = 0; part < count; part++) {
      const word = Math.floor((at[lane] + part * WORD) / WORD), when = turn ? turn[lane * count + part] : 0;
      const key = `${when}:${word}`;
      if (!words.has(key)) words.set(key, { word, turn: when, lanes: [] });
      words.get(key).lanes.push(lane);
    }
  }
  return [...words.values()];
}

function laneCell(svg, x, y, wanted, chosen, sizes) {
  const lane = wanted.lanes.includes(chosen) ? chosen : wanted.lanes[0];
  const css = wanted.lanes.includes(chosen) ? "cell chosen" : "cell";
  const made = shape("rect", { x, y, width: sizes.cell, height: sizes.row - 1, fill: laneColour(lane), class: css, "data-lane": lane });
  svg.append(titled(made, lanesWords(wanted.lanes)));
  const label = wanted.lanes.length === LANES ? "all" : wanted.lanes.length > 2 ? `×${wanted.lanes.length}` : lane;
  const wide = [...String(label)].reduce((sum, letter) => sum + (letter === "×" ? 8 : 5.4), 0);
  if (wide > sizes.cell + 2) return;
  svg.append(shape("text", { x: x + sizes.cell / 2, y: y + sizes.row * 0.5 + 4, "text-anchor": "middle", class: `lane ${sizes.css}` }, label));
}

// One row a line of 128 bytes: sectors that are moved, and in them the words that lanes asked for.
function drawGlobal(moment, chosen, place = "memory") {
  const wanted = wantedWords(moment), gap = 5;
  const lines = [...new Set(wanted.map((each) => Math.floor((each.word * WORD) / LINE)))].sort((a, b) => a - b);
  const sizes = grid(lines.length, 70, 3 * gap, place), svg = drawing(sizes.width, 22 + sizes.row * lines.length, "sectors of global memory");
  const xOf = (word) => sizes.left + (word % 32) * sizes.cell + Math.floor((word % 32) / 8) * gap;
  for (let sector = 0; sector < 4; sector++)
    svg.append(shape("text", { x: xOf(sector * 8), y: 13, class: "muted" }, `sector ${sector}`));
  lines.forEach((line, row) => {
    const y = 20 + row * sizes.row;
    svg.append(shape("text", { x: sizes.left - 6, y: y + sizes.row * 0.5 + 4, "text-anchor": "end", class: "muted" }, `byte ${line * LINE}`));
    for (let word = 0; word < 32; word++) {
      const sector = Math.floor((line * 32 + word) / 8);
      const moved = wanted.some((each) => Math.floor(each.word / 8) === sector);
      svg.append(shape("rect", { x: xOf(word), y, width: sizes.cell, height: sizes.row - 1, class: `cell ${moved ? "moved" : "idle"}` }));
    }
  });
  for (const each of wanted) {
    const line = Math.floor(each.word / 32);
    laneCell(svg, xOf(each.word), 20 + lines.indexOf(line) * sizes.row, each, chosen, sizes);
  }
  return svg;
}

// One row a turn, one column a bank: a bank gives one word in a turn.
function drawShared(moment, chosen, place = "memory") {
  const wanted = wantedWords(moment), sizes = grid(moment.turns, 56, 0, place), { left, cell, row } = sizes;
  const svg = drawing(sizes.width, 22 + row * moment.turns, "banks of shared memory, turn by turn");
  svg.append(shape("text", { x: left - 6, y: 13, "text-anchor": "end", class: "muted" }, "bank"));
  for (let bank = 0; bank < BANKS; bank += cell < 14 ? 4 : 1)
    svg.append(shape("text", { x: left + bank * cell + cell / 2, y: 13, "text-anchor": "middle", class: "muted" }, bank));
  for (let turn = 0; turn < moment.turns; turn++) {
    const y = 20 + turn * row;
    svg.append(shape("text", { x: left - 6, y: y + row * 0.5 + 4, "text-anchor": "end", class: "muted" }, `turn ${turn + 1}`));
    for (let bank = 0; bank < BANKS; bank++)
      svg.append(shape("rect", { x: left + bank * cell, y, width: cell, height: row - 1, class: "cell idle" }));
  }
  for (const each of wanted)
    laneCell(svg, left + (each.word % BANKS) * cell, 20 + each.turn * row, each, chosen, sizes);
  return svg;
}

function lanesWords(lanes) {
  return lanes.length === 1 ? `lane ${lanes[0]}` : `lanes ${lanes.join(", ")}`;
}

// What the picture says, in one sentence, and whether that is as good as it gets.
function verdictOf(moment) {
  if (moment.kind === "global") return globalVerdict(moment);
  if (moment.kind === "shared") return sharedVerdict(moment);
  if (moment.kind === "copy") {
    const [to, from] = moment.loads ? ["shared memory", "global memory"] : ["global memory", "shared memory"];
    return ["good", "One thread orders a whole box.", `TMA moves ${moment.bytes.toLocaleString("en")} bytes from ${from} to ${to}; no lane computes an address.${moment.blocks > 1 ? ` The box goes to ${moment.blocks} blocks of the cluster.` : ""}`];
  }
  if (moment.kind === "product") return ["good", "The tensor core reads shared memory itself.", "This warp's 16 rows of A by all columns of B, 32 bytes deep: no load, no register for A and B."];
  return ["", WAITS[moment.name][0], WAITS[moment.name][1]];
}

const WAITS = {
  barrier: ["Barrier: all threads of the block meet.", "Nobody goes on before the last one has come: tiles are whole before anyone reads them, and read before they change."],
  mbarrier: ["mbarrier: this warp knows that a stage changed hands.", "A full stage has all its bytes; an empty one was read by all its readers."],
  "cp.async": ["cp.async: the oldest group of copies has landed.", "Later groups stay under way meanwhile."],
  wgmma: ["wgmma: products of an earlier step are complete.", "Their stage may be given back; later products stay queued."],
};

function globalVerdict(moment) {
  const bytes = new Set(wantedWords(moment).map((each) => each.word)).size * WORD;
  const best = Math.ceil(bytes / SECTOR), used = bytes / (moment.sectors * SECTOR);
  const lanes = [...Array(LANES).keys()].filter((lane) => present(moment, lane)).length;
  const head = `${plural(moment.sectors, "sector")} for ${plural(lanes, "lane")}`;
  const moved = `Memory moves whole sectors of 32 bytes: ${moment.sectors * SECTOR} bytes, of which the lanes use ${percent(Math.min(used, 1))}.`;
  if (moment.sectors > best * 1.5) return ["bad", `${head}: not coalesced.`, `${moved} The same bytes lie in ${best} neighbouring sectors at best.`];
  if (bytes <= WORD * 2 && lanes > 2) return ["good", `${head}: all lanes want the same.`, moved];
  return ["good", `${head}: coalesced.`, moved];
}

function sharedVerdict(moment) {
  const wanted = wantedWords(moment), words = new Set(wanted.map((each) => each.word)).size;
  const head = `${plural(moment.turns, "turn")} of shared memory`;
  if (moment.turns > moment.least) {
    const [bank, most] = busiest(wanted);
    return ["bad", `${head}: a bank conflict.`, `Bank ${bank} is asked for ${plural(most, "different word")} and gives one a turn, while other banks idle. ${plural(moment.least, "turn")} would do.`];
  }
  const many = wanted.some((each) => each.lanes.length > 1) ? " Lanes that want the same word share it." : "";
  const wide = moment.size > WORD ? ` A request of ${moment.size} bytes a lane goes in parts, so it takes ${plural(moment.least, "turn")} at best.` : "";
  return ["good", `${head}: no conflict.`, `${plural(words, "word")} from 32 banks; a bank gives one in a turn.${many}${wide}`];
}

function busiest(wanted) {
  const counts = new Map();
  for (const each of wanted) counts.set(each.word % BANKS, (counts.get(each.word % BANKS) || 0) + 1);
  return [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
}

function drawMemory(moment, chosen) {
  const place = byId("memory"), [css, head, rest] = verdictOf(moment);
  byId("verdict").className = css;
  byId("verdict").replaceChildren(element("b", {}, head), element("small", {}, rest));
  const titles = { global: "Global memory: a row is a line of 128 bytes, the numbers are lanes", shared: "Shared memory: a row is a turn, a column is a bank, the numbers are lanes", copy: "TMA", product: "Tensor core", wait: "Waiting" };
  byId("memory-title").textContent = titles[moment.kind];
  if (moment.kind === "global") place.replaceChildren(drawGlobal(moment, chosen));
  else if (moment.kind === "shared") place.replaceChildren(drawShared(moment, chosen));
  else place.replaceChildren(element("p", { class: "muted" }, (moment.boxes || []).map(boxWords).join(" · ")), ...atomPictures(moment, "memory").flatMap(([title, ...drawn]) => [element("h3", {}, title), ...drawn]));
}

function boxWords([matrix, row, column, rows, columns]) {
  return `${data.matrices[matrix].name}[${row}..${row + rows - 1}, ${column}..${column + columns - 1}]`;
}
