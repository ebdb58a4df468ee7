// What a lesson opens with: the idea in words beside its picture, and the same moment of the rung before.

const opening = data.opening, HERE = "opening-picture";

function writeOpening() {
  if (!opening) return byId("opening").remove();
  const needs = opening.needs.map((number) => String(number).padStart(2, "0")).join(", ");
  byId("opening-words").replaceChildren(
    element("p", {}, opening.words),
    ...(needs ? [element("p", { class: "muted" }, `Read first: ${needs}.`)] : []),
    element("details", { id: "question" }, element("summary", {}, opening.question), element("p", {}, opening.answer)),
  );
}

function drawOpening() {
  if (opening) byId(HERE).replaceChildren(...PICTURES[opening.picture]().flatMap(([title, ...drawn]) => [element("h3", {}, title), ...drawn]));
}

const PICTURES = { request: requestPictures, counts: countPicture, timeline: rowPictures, tile: tilePictures, ring: ringPicture, rounds: () => [...ringPicture(), ...sharePictures()], shares: sharePictures, registers: registerPictures, cluster: clusterPicture };
const openingMoment = () => data.warps[opening.place[0]].moments[opening.place[1]];
const both = (before, now) => [...(before ? [[`Before: ${data.before}`, before]] : []), [`Now: ${data.name}`, now]];
const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: Math.max(3, String(Math.round(value)).length) });

// ---- a request of memory, before and now ----

function requestPictures() {
  return both(opening.before, openingMoment()).map(([title, moment]) => {
    const [css, head] = verdictOf(moment), drawn = moment.kind === "global" ? drawGlobal(moment, -1, HERE) : moment.kind === "shared" ? drawShared(moment, -1, HERE) : "";
    return [title, element("p", { class: `told ${css}` }, head, ...(moment.size ? [element("span", { class: "muted" }, ` ${plural(moment.size, "byte")} a lane`)] : [])), drawn];
  });
}

// ---- one row of counts as bars ----

function countPicture() {
  const { name, before, now, means } = data.counts.find((row) => row.name === opening.row) || data.counts[0], most = Math.max(before || 0, now);
  const bars = [[data.before, before, ""], [data.name, now, "here"]].filter(([, value]) => value !== null).flatMap(([whose, value, css]) => [
    element("div", { class: css }, whose), element("div", { class: css }, element("span", { class: "bar", style: `width: calc(var(--full) * ${value / most})` }), ` ${digits(value)}`)]);
  return [[`${name[0].toUpperCase()}${name.slice(1)}`, element("div", { class: "bars" }, ...bars), element("p", { class: "muted" }, `${means}, counted by the machine`)]];
}

// ---- a warp's time, before and now, on one scale ----

function rowPictures() {
  const room = roomOf(HERE), longest = Math.max(...opening.rows.map((row) => row.end));
  return opening.rows.map((row, place) => {
    const svg = drawing(room, HIGH + 2, `what a warp of ${row.name} does`), x = (time) => (time / longest) * room;
    for (const segment of row.segments) drawSegment(svg, segment, [x(segment[0]), x(segment[1])], 2);
    const waits = row.segments.filter((each) => each[2] === "wait").reduce((sum, [begin, end]) => sum + end - begin, 0);
    const key = ["multiply", "shared load", "store", "global", "wait", "other"].map((kind) => element("li", {}, element("span", { class: `k-${KINDS[kind]}` }), KIND_WORDS[kind] || KIND_WORDS[KINDS[kind]]));
    return [`${place < opening.rows.length - 1 ? "Before" : "Now"}: ${row.name}, one warp`, svg, element("p", { class: "muted" }, `${row.shape.join(" x ")}: ${digits(row.end)} cycles, of which it waits ${percent(waits / row.end)}`), ...(place === opening.rows.length - 1 ? [element("ul", { class: "key" }, ...key)] : [])];
  });
}

// ---- swizzled tiles: 1024 bytes of shared memory, a row of 128 bytes each, pieces of 16 bytes ----

function drawAtom(atom, place, outlined) {
  const room = Math.min(roomOf(place), 420), left = 44, cell = (room - left - 2) / 8, high = 22, numbers = unpack(atom.places);
  const svg = drawing(room, 20 + 8 * high, "pieces of 16 bytes in shared memory");
  const first = numbers.find((number) => number >= 0);
  if (first === undefined) return svg;
  const along = numbers.slice(0, 8).filter((number) => number >= 0).map(placeOf), low = Math.min(...along.map((each) => each.column)), wide = Math.max(...along.map((each) => each.column)) - low;
  for (let bank = 0; bank < 8; bank++) svg.append(shape("text", { x: left + (bank + 0.5) * cell, y: 13, "text-anchor": "middle", class: "muted" }, cell > 38 ? `${bank * 4}..${bank * 4 + 3}` : bank * 4));
  svg.append(shape("text", { x: left - 5, y: 13, "text-anchor": "end", class: "muted" }, "banks"));
  numbers.forEach((number, index) => {
    const x = left + (index % 8) * cell, y = 18 + Math.floor(index / 8) * high, held = placeOf(number);
    if (index % 8 === 0) svg.append(shape("text", { x: left - 5, y: y + 15, "text-anchor": "end", class: "muted" }, `row ${index / 8}`));
    if (!held) return svg.append(shape("rect", { x, y, width: cell, height: high - 1, class: "cell idle" }));
    const piece = wide ? Math.round(((held.column - low) / wide) * 7) : 0, read = outlined && atom.read[index] === "1";
    svg.append(titled(shape("rect", { x: x + 1, y: y + 1, width: cell - 2, height: high - 3, fill: `hsl(${piece * 45} 62% 62%)`, class: read ? "chosen" : "cell" }), `${held.matrix}[${held.row}, ${held.column}...]${read ? ", read here" : ""}`));
    svg.append(shape("text", { x: x + cell / 2, y: y + 15, "text-anchor": "middle", class: "lane" }, piece));
  });
  return svg;
}

function atomPictures(moment, place) {
  const words = moment.kind === "product" ? "Outlined: what this instruction reads of these 1024 bytes." : "The first 1024 bytes of the box, as TMA lays them.";
  return (moment.atoms || []).filter((atom) => unpack(atom.places).some((number) => number >= 0)).map((atom) => {
    const first = placeOf(unpack(atom.places).find((number) => number >= 0));
    return [`Shared memory from ${first.matrix}[${first.row}, ${first.column}] on: which piece of its row lies where`, drawAtom(atom, place, moment.kind === "product"), element("p", { class: "muted" }, words)];
  });
}

function tilePictures() {
  return atomPictures(openingMoment(), HERE);
}

// ---- the ring of stages ----

const FILLS = [["copy", "filled by TMA"], ["other", "full, nobody reads"], ["multiply", "read"]];

function ringPicture() {
  const fills = opening.ring, stages = Math.max(...fills.map((fill) => fill[0])) + 1, end = Math.max(...fills.map((fill) => fill[5])) * 1.02;
  const room = roomOf(HERE), left = 58, high = 30, x = (time) => left + (time / end) * (room - left - 4);
  const svg = drawing(room, stages * high + 24, "stages over time");
  for (let stage = 0; stage < stages; stage++) svg.append(shape("text", { x: left - 6, y: stage * high + 19, "text-anchor": "end", class: "muted" }, `stage ${stage}`));
  fills.forEach(([stage, k, ...times]) => {
    FILLS.forEach(([css, words], part) => {
      const [begin, stop] = [times[part], times[part + 1]];
      svg.append(titled(shape("rect", { x: x(begin), y: stage * high + 4, width: Math.max(x(stop) - x(begin), 1), height: high - 8, class: `k-${css}`, "data-part": part }), `k from ${k}: ${words}, cycle ${begin} to ${stop}`));
    });
    const label = `k ${k}`, roomy = FILLS.findIndex((_, part) => fitting([label], x(times[part + 1]) - x(times[part]) - 5));
    if (roomy >= 0) svg.append(shape("text", { x: x(times[roomy]) + 4, y: stage * high + 20, class: "lane" }, label));
    for (const [time, css, words] of [[times[1], "good", "full: its bytes are there"], [times[3], "bad", "empty: all readers are done"]])
      svg.append(titled(shape("path", { d: `M${x(time)} ${stage * high + 1}v${high - 2}`, class: `mark ${css}` }), `mbarrier ${words}, cycle ${time}`));
  });
  drawAxisOf(svg, room, left, end, stages * high + 2);
  const key = [...FILLS.map(([css, words]) => element("li", {}, element("span", { class: `k-${css}` }), words)), element("li", {}, element("span", { class: "mark good" }), "full barrier"), element("li", {}, element("span", { class: "mark bad" }), "empty barrier")];
  return [["The ring of stages, cycle by cycle", svg, element("ul", { class: "key" }, ...key)]];
}

function drawAxisOf(svg, room, left, end, y) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) svg.append(shape("text", { x: left + share * (room - left - 4), y: y + 16, class: "muted", "text-anchor": share ? "end" : "start" }, Math.round(share * end)));
}

// ---- who computes which tile ----

function sharePictures() {
  const { before, now, steps } = opening.shares;
  const drawn = both(before, now).map(([title, rows]) => [title, drawShares(rows, steps)]);
  return [...drawn, [`Six tiles of C, four blocks, ${steps} steps of k a tile`, drawTiles()]];
}

const tileColour = (tile) => `hsl(${tile * 60} 55% 62%)`;

// The first of some labels that has room, in letters of 11 pixels; none where none has.
const fitting = (labels, room) => labels.find((each) => String(each).length * 6.2 <= room) ?? "";

function drawShares(rows, steps) {
  const room = roomOf(HERE), left = 58, high = 28, end = 2 * steps, x = (step) => left + (step / end) * (room - left - 4);
  const svg = drawing(room, rows.length * high + 4, "blocks and their tiles"), parts = [];
  rows.forEach((units, block) => {
    svg.append(shape("text", { x: left - 6, y: block * high + 19, "text-anchor": "end", class: "muted" }, `block ${block}`));
    let time = 0;
    for (const [tile, first, stop, peer, peers] of units) {
      const from = x(time), to = x((time += stop - first)), steps = `k ${first}–${stop}`;
      const words = peers > 1 ? fitting([`tile ${tile}, ${steps}`, `${tile}: ${steps}`, steps], to - from - 18) : fitting([`tile ${tile}`, tile], to - from - 6);
      svg.append(titled(shape("rect", { x: from, y: block * high + 3, width: to - from - 1, height: high - 6, fill: tileColour(tile), "data-tile": tile }), `block ${block}: tile ${tile}, steps ${first} to ${stop} of k${peers > 1 ? peer === peers - 1 ? "; it ends the tile and adds the others' sums" : "; it hands its sums on" : ""}`));
      svg.append(shape("text", { x: from + 5, y: block * high + 19, class: "lane" }, words));
      if (peers > 1) parts.push({ tile, peer, peers, at: to, y: block * high + high / 2, block });
    }
    if (time < end) svg.append(shape("rect", { x: x(time), y: block * high + 3, width: x(end) - x(time), height: high - 6, class: "idle" }));
  });
  for (const giver of parts.filter((part) => part.peer < part.peers - 1)) {
    const taker = parts.find((part) => part.tile === giver.tile && part.peer === giver.peers - 1);
    svg.append(titled(shape("path", { d: `M${giver.at - 4} ${giver.y}L${taker.at - 4} ${taker.y}`, class: "hand" }), `block ${giver.block} hands its sums of tile ${giver.tile} to block ${taker.block}`));
    svg.append(shape("circle", { cx: taker.at - 4, cy: taker.y, r: 4, class: "hand" }));
  }
  return svg;
}

function drawTiles() {
  const [rows, columns] = opening.shares.tiles, wide = 56, high = 30, svg = drawing(columns * wide + 2, rows * high + 2, "tiles of C");
  for (let tile = 0; tile < rows * columns; tile++) {
    const x = (tile % columns) * wide, y = Math.floor(tile / columns) * high;
    svg.append(shape("rect", { x, y, width: wide - 2, height: high - 2, fill: tileColour(tile) }), shape("text", { x: x + wide / 2, y: y + 19, "text-anchor": "middle", class: "lane" }, `tile ${tile}`));
  }
  return svg;
}

// ---- banks of the register file ----

function registerPictures() {
  if (!opening.registers.length) return [["Registers", element("p", { class: "muted" }, "nvdisasm was not found, so the machine code could not be read.")]];
  return opening.registers.map((found, place) => {
    const last = place === opening.registers.length - 1, shown = found.rows.slice(0, 12), room = roomOf(HERE), left = 66, cell = Math.min((room - left) / 3, 110), high = 20;
    const svg = drawing(room, 18 + shown.length * high, "registers of each fma");
    ["A or B", "B or A", "sum"].forEach((words, operand) => svg.append(shape("text", { x: left + operand * cell + 4, y: 12, class: "muted" }, words)));
    shown.forEach((operands, row) => {
      const banks = operands.filter((operand) => operand[2]).map((operand) => operand[1]), clash = new Set(banks).size < banks.length;
      svg.append(shape("text", { x: left - 6, y: 32 + row * high, "text-anchor": "end", class: clash ? "clash" : "muted" }, clash ? "one bank" : "fma"));
      operands.forEach(([register, bank, fetched], operand) => {
        svg.append(titled(shape("rect", { x: left + operand * cell, y: 18 + row * high, width: cell - 3, height: high - 3, class: fetched ? `bank${bank}` : "idle" }), fetched ? `R${register}, from the bank of ${bank ? "odd" : "even"} registers` : `R${register} stays from an fma before`));
        svg.append(shape("text", { x: left + operand * cell + 5, y: 32 + row * high, class: fetched ? "lane" : "muted" }, `R${register}${fetched ? "" : " stays"}`));
      });
    });
    const told = element("p", { class: `told ${found.late > found.fmas / 50 ? "bad" : "good"}` }, `${plural(found.late, "cycle")} lost to banks for ${found.fmas} fmas of the loop`);
    const key = [["bank0", "even register"], ["bank1", "odd register"], ["idle", "stays from before, not fetched"]].map(([css, words]) => element("li", {}, element("span", { class: css }), words));
    return [`${last ? "Now" : "Before"}: the first fmas of the loop, as the assembler ordered them`, told, svg, ...(last ? [element("ul", { class: "key" }, ...key)] : [])];
  });
}

// ---- boxes that go to both blocks of a cluster ----

function clusterPicture() {
  const orders = data.warps[opening.place[0]].moments.filter((each) => each.kind === "copy" && each.loads), k = orders[0].boxes[0][2];
  const again = orders.findIndex((each) => each.boxes[0][0] === 0 && each.boxes[0][2] !== k), first = orders.slice(0, again < 0 ? undefined : again);
  const mine = first.filter((each) => each.blocks === 1).map((each) => each.boxes[0]), shared = first.filter((each) => each.blocks > 1).map((each) => each.boxes[0]);
  const room = roomOf(HERE), wide = Math.min((room - 20) / 2, 260), [bm, bn] = data.tile, half = wide / (bn / 64), svg = drawing(room, 176, "what each block of the cluster orders");
  const slabs = [...Array(Math.round(bn / 64)).keys()], ours = new Set(shared.flatMap((box) => slabs.filter((slab) => slab * 64 >= box[2] && slab * 64 < box[2] + box[4])));
  for (const block of [0, 1]) {
    const left = block * (wide + 20);
    svg.append(shape("text", { x: left, y: 14 }, `block ${block}'s shared memory`), shape("rect", { x: left, y: 24, width: wide, height: 40, class: `block${block}` }));
    svg.append(shape("text", { x: left + 8, y: 48, class: "lane" }, `A, rows ${block * bm}..${(block + 1) * bm - 1}`));
    for (const slab of slabs) {
      const giver = ours.has(slab) ? 0 : 1;
      svg.append(titled(shape("rect", { x: left + slab * half, y: 74, width: half - 2, height: 52, class: `block${giver}` }), `columns ${slab * 64} to ${slab * 64 + 63} of B, ordered by block ${giver} for both`));
      svg.append(shape("text", { x: left + slab * half + 5, y: 96, class: "lane" }, `B ${slab}`), shape("text", { x: left + slab * half + 5, y: 114, class: "lane tiny" }, `by ${giver}`));
    }
  }
  svg.append(shape("text", { x: 0, y: 148, class: "muted" }, `Block 0 orders ${mine.map(boxWords).join(", ")} for itself,`), shape("text", { x: 0, y: 166, class: "muted" }, `and ${shared.map(boxWords).join(", ")} for both.`));
  return [["A step of k: who orders what, and who gets it", svg]];
}
