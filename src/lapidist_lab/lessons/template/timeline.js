// The block as a timeline: a row a warp, what it does, what it waits for, and copies under way below.

const KINDS = { multiply: "multiply", "shared load": "load", store: "store", global: "global", copy: "global", other: "other", wait: "wait" };
const KIND_WORDS = { multiply: "multiplies", load: "reads shared memory", store: "writes shared memory", global: "asks global memory", wait: "waits", copy: "copies under way", other: "other instructions" };
const HIGH = 26, WINDOW = 0.12;
let WIDE = 1000, MARGIN = 120;

function span(time, zoomed) {
  const { end } = data.timeline, wide = Math.max(end * WINDOW, Math.min(end, 600));
  if (!zoomed) return [0, end];
  const begin = Math.min(Math.max(time - wide / 2, 0), end - wide);
  return [begin, begin + wide];
}

function drawTimeline(warp, moment, zoomed) {
  WIDE = roomOf("timeline");
  MARGIN = WIDE < 600 ? 84 : 120;
  const { rows, flights } = data.timeline, [begin, end] = span(moment.t, zoomed);
  const x = (time) => MARGIN + ((time - begin) / (end - begin)) * (WIDE - MARGIN - 8);
  const shown = flights.filter((each) => each[1] > begin && each[0] < end), tracks = tracksOf(shown);
  const low = 8 + rows.length * HIGH, height = low + (tracks.count ? tracks.count * 9 + 12 : 0) + 30;
  const svg = drawing(WIDE, height, "what each warp does, cycle by cycle");
  rows.forEach((row, place) => {
    const y = 8 + place * HIGH;
    svg.append(shape("text", { x: MARGIN - 6, y: y + 15, "text-anchor": "end", class: row.warp === warp.warp ? "" : "muted" }, `warp ${row.warp}${row.role === "multiplies" ? "" : ": loads"}`));
    for (const segment of row.segments) if (segment[1] > begin && segment[0] < end) drawSegment(svg, segment, [Math.max(x(segment[0]), MARGIN), Math.min(x(segment[1]), WIDE - 8)], y);
  });
  shown.forEach((flight, place) => {
    const left = Math.max(x(flight[0]), MARGIN), made = shape("rect", { x: left, y: low + 4 + tracks.of[place] * 9, width: Math.max(Math.min(x(flight[1]), WIDE - 8) - left, 1), height: 7, class: "k-copy" });
    svg.append(titled(made, `${flight[4]} x ${flight[2]}, ordered by warp ${flight[3]} at ${flight[0]}, under way until ${flight[1]} at most`));
  });
  if (shown.length) svg.append(shape("text", { x: MARGIN - 6, y: low + 12, "text-anchor": "end", class: "muted" }, "copies"));
  drawAxis(svg, x, begin, end, height - 22);
  svg.append(shape("line", { x1: x(moment.t), x2: x(moment.t), y1: 2, y2: height - 22, class: "cursor", id: "cursor" }));
  byId("timeline").replaceChildren(svg);
}

function drawSegment(svg, [begin, end, kind, line, parts], [left, right], y) {
  const total = Object.values(parts).reduce((sum, part) => sum + part, 0) || 1;
  const words = Object.entries(parts).map(([name, cycles]) => `${name} ${cycles}`).join(", ");
  const group = titled(shape("g", {}), `${end - begin} cycles from ${begin}: ${kind === "wait" ? "waits for " : ""}${words}${line ? ` (line ${line})` : ""}`);
  let top = y;
  for (const [name, cycles] of Object.entries(parts)) {
    const height = (cycles / total) * (HIGH - 5), css = `k-${kind === "wait" ? "wait" : KINDS[name]}`;
    group.append(shape("rect", { x: left, y: top, width: Math.max(right - left, 0.4), height, class: css }));
    top += height;
  }
  svg.append(group);
}

// Copies that overlap lie below each other.
function tracksOf(flights) {
  const ends = [], of = [];
  for (const [begin, end] of flights) {
    let track = ends.findIndex((free) => free <= begin);
    if (track < 0) track = Math.min(ends.length, 11);
    ends[track] = end;
    of.push(track);
  }
  return { count: ends.length, of };
}

function drawAxis(svg, x, begin, end, y) {
  const power = 10 ** Math.floor(Math.log10((end - begin) / 4)), ticks = (end - begin) / power, most = WIDE / 90;
  const step = power * ([1, 2, 5, 10].find((factor) => ticks / factor <= most) || 20);
  svg.append(shape("line", { x1: MARGIN, x2: WIDE - 8, y1: y, y2: y, class: "axis" }));
  for (let tick = Math.ceil(begin / step) * step; tick <= end; tick += step)
    svg.append(shape("text", { x: Math.min(x(tick), WIDE - 22), y: y + 15, "text-anchor": "middle", class: "muted" }, tick));
}

function kindKey() {
  byId("kinds").replaceChildren(...Object.entries(KIND_WORDS).map(([kind, words]) => element("li", {}, element("span", { class: `k-${kind}` }), words)));
  byId("model").textContent = `A simple model, not a measurement: the ${plural(data.timeline.warps, "warp")} of one block alone, an instruction a cycle each, global memory answers after ${data.latency} cycles, a turn of shared memory takes one. Point at a piece for its cycles.`;
}
