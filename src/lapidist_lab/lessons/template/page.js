// The state of the page, and what changes it: a warp, one of its moments, one of its lanes.

const state = { warp: 0, moment: 0, lane: 0, zoom: false, playing: null };
const warpNow = () => data.warps[state.warp];
const momentNow = () => warpNow().moments[state.moment];

function show() {
  const warp = warpNow(), moment = momentNow(), [line, ptx] = data.sites[moment.site];
  byId("slider").max = warp.moments.length - 1;
  byId("slider").value = state.moment;
  byId("moment").textContent = `${state.moment + 1} of ${warp.moments.length}: ${momentWords(moment)}`;
  byId("moment").title = ptx;
  markLine(line);
  drawMemory(moment, state.lane);
  drawWhere(warp, moment, state.lane);
  drawTimeline(warp, moment, state.zoom);
  inspect(state.lane);
  markChapter();
  byId("warp").value = state.warp;
  const name = moment.kind === "wait" ? "" : nameOf(moment);
  document.querySelectorAll("#requests button").forEach((each) => each.classList.toggle("here", each.dataset.name === name));
}

function momentWords(moment) {
  if (moment.kind === "wait") return `after the wait for ${{ barrier: "the block's barrier", mbarrier: "an mbarrier", "cp.async": "cp.async", wgmma: "wgmma" }[moment.name]}`;
  if (moment.kind === "copy") return `${moment.loads ? "order" : "store"} ${moment.boxes.map(boxWords).join(", ")} by TMA${moment.blocks > 1 ? ` for ${moment.blocks} blocks` : ""}`;
  if (moment.kind === "product") return `wgmma on ${moment.boxes.map(boxWords).join(" and ")}`;
  const place = placeOf(unpack(moment.places).find((number) => number >= 0) ?? -1);
  const of = !place ? "" : place.matrix === "C" ? ", sums of C" : ` of ${place.matrix}, k from ${place.matrix === "A" ? place.column : place.row}`;
  return `${moment.what} ${plural(moment.size, "byte")} a lane ${moment.what === "load" ? "from" : "to"} ${moment.kind} memory${of}`;
}

function inspect(lane) {
  const moment = momentNow(), place = byId("inspect");
  if (!moment.at || !present(moment, lane)) {
    place.textContent = moment.at ? `lane ${lane} takes no part` : "";
    return;
  }
  const at = unpack(moment.at)[lane], places = unpack(moment.places), each = places.length / LANES;
  const words = Math.max(moment.size / WORD, 1), bank = Math.floor(at / WORD) % BANKS;
  const served = moment.turn ? `bank ${bank}${words > 1 ? `..${(bank + words - 1) % BANKS}` : ""}, turn ${unpack(moment.turn)[lane * words] + 1}` : `sector ${Math.floor(at / SECTOR)}`;
  place.textContent = `lane ${lane} (thread ${warpNow().warp * LANES + lane}): byte ${at} (0x${at.toString(16)}) of ${moment.kind} memory, ${served}; ${placeWords(places.slice(lane * each, (lane + 1) * each))}`;
}

// ---- source ----

function writeSource() {
  const lines = data.source.map((text, index) => {
    const css = /^\s*\/\//.test(text) ? "comment" : "";
    return element("span", { class: "line", id: `line-${index + 1}` }, element("span", { class: "number" }, `${index + 1}`), element("span", { class: css }, text || " "));
  });
  byId("source").replaceChildren(...lines);
}

function markLine(number) {
  document.querySelectorAll(".line.now").forEach((line) => line.classList.remove("now"));
  const line = byId(`line-${number}`), box = byId("source");
  if (!line) return;
  line.classList.add("now");
  if (line.offsetTop < box.scrollTop + box.offsetTop || line.offsetTop > box.scrollTop + box.offsetTop + box.clientHeight - 30) box.scrollTop = line.offsetTop - box.offsetTop - box.clientHeight / 3;
}

// ---- chapters of the slider: steps of k ----

const MOST_CHAPTERS = 12;

// [moment, words]: where the warp turns to another step of k. What it multiplies counts, else what it loads.
function chaptersOf(warp) {
  const multiplied = (moment) => moment.kind === "product" || (moment.kind === "shared" && moment.what === "load"), some = warp.moments.some((moment) => multiplied(moment) && stepOf(moment) >= 0);
  const found = [];
  let last = -1, tileBefore = "";
  warp.moments.forEach((moment, place) => {
    const step = some && !multiplied(moment) ? -1 : stepOf(moment), corner = String(originOf(warp, place));
    if (step < 0 || (corner === tileBefore && step <= last)) return; // a prefetch behind the last step reads an old stage
    [last, tileBefore] = [step, corner];
    const tile = originOf(warp, place).some((value) => value) ? `C[${originOf(warp, place).join(", ")}] ` : "";
    found.push([place, `${tile}k ${step * data.tile[2]}`]);
  });
  const sums = warp.moments.findIndex((moment) => moment.what === "store" && matrixOf(moment) === "C");
  const every = Math.ceil(found.length / MOST_CHAPTERS);
  return [...found.filter((_, place) => place % every === 0), ...(sums < 0 ? [] : [[sums, "sums leave"]])].sort((one, other) => one[0] - other[0]);
}

// The step of k of A's or B's elements that a moment is about; -1 of others.
function stepOf(moment) {
  const [matrix, row, column] = moment.boxes?.[0] ?? [], place = moment.places ? placeOf(unpack(moment.places).find((number) => number >= 0) ?? -1) : null;
  const name = place ? place.matrix : data.matrices[matrix]?.name, along = place ?? { row, column };
  return name === "A" ? Math.floor(along.column / data.tile[2]) : name === "B" ? Math.floor(along.row / data.tile[2]) : -1;
}

function writeChapters() {
  const warp = warpNow();
  byId("chapters").replaceChildren(...chaptersOf(warp).map(([place, words]) => {
    const made = element("button", { "data-place": place }, words);
    made.addEventListener("click", () => go(place));
    return made;
  }));
}

function markChapter() {
  const made = [...document.querySelectorAll("#chapters button")], now = made.findLast((each) => Number(each.dataset.place) <= state.moment);
  made.forEach((each) => each.toggleAttribute("aria-current", each === now));
}

// ---- the instructions of a warp that touch memory, each with its worst moment ----

function writeRequests() {
  const found = new Map();
  warpNow().moments.forEach((moment, place) => {
    if (moment.kind === "wait") return;
    const cost = moment.turns || moment.sectors || 0, known = found.get(nameOf(moment));
    if (!known) found.set(nameOf(moment), { place, cost, count: 1 });
    else Object.assign(known, { count: known.count + 1 }, cost > known.cost ? { place, cost } : {});
  });
  const rows = [...found].map(([name, { place, count }]) => {
    const moment = warpNow().moments[place], [css, head] = verdictOf(moment);
    const made = element("button", { class: css, "data-place": place, "data-name": name }, `${name} (${count}x): ${head}`);
    made.addEventListener("click", () => go(place));
    return element("li", {}, made);
  });
  byId("requests").replaceChildren(...rows);
}

// Moments of one line that move the same kind of thing.
function nameOf(moment) {
  const line = data.sites[moment.site][0], where = line ? `line ${line}: ` : "";
  if (moment.kind === "copy") return `${where}${moment.loads ? "TMA load" : "TMA store"}`;
  if (moment.kind === "product") return `${where}wgmma`;
  const first = placeOf(unpack(moment.places).find((number) => number >= 0) ?? -1);
  return `${where}${moment.what} ${moment.kind}${first ? `, ${first.matrix === "C" && moment.kind === "shared" ? "sums of C" : first.matrix}` : ""}`;
}

// The moment that a reader should see first: what the loop along k does with A and B, and there what costs more
// than it must. Sums on their way out are no rung's idea.
function worst() {
  const places = [...document.querySelectorAll("#requests button")].map((each) => Number(each.dataset.place));
  const of = (place) => warpNow().moments[place], bad = (place) => verdictOf(of(place))[0] === "bad";
  const inLoop = places.filter((place) => of(place).boxes ? of(place).loads !== false : matrixOf(of(place)) !== "C");
  const ways = [(place) => bad(place) && (of(place).what === "load" || of(place).kind === "shared"), (place) => of(place).kind === "shared" && of(place).what === "load", (place) => of(place).kind !== "global"];
  return ways.map((way) => inLoop.find(way)).find((place) => place !== undefined) ?? inLoop[0] ?? 0;
}

// The matrix of a request's elements.
function matrixOf(moment) {
  return placeOf(unpack(moment.places).find((number) => number >= 0) ?? -1)?.matrix;
}

// ---- what stays as it is ----

function writeHead() {
  byId("title").textContent = `${String(data.number).padStart(2, "0")} ${data.name}: ${data.idea}`;
  byId("lesson").textContent = data.header.Lesson;
  const facts = { ...data.header, Product: `${data.shape.join(" x ")} in ${data.math}; ${data.config}; blocks of ${data.threads} threads` };
  delete facts.Lesson;
  byId("header").replaceChildren(...Object.entries(facts).flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]));
  byId("warp").replaceChildren(...data.warps.map((each, place) => element("option", { value: place }, `${each.warp}: ${each.role}`)));
}

function writeCounts() {
  const number = (value) => (value === null ? "" : digits(value));
  const row = ({ name, before, now, means }) => {
    const css = before === null || Math.abs(now - before) < 0.02 * before ? "" : now < before ? "better" : "worse";
    return element("tr", {}, element("td", {}, name), element("td", {}, number(before)), element("td", { class: css }, number(now)), element("td", { class: "words muted" }, means));
  };
  const heads = ["", data.before ? `before: ${data.before}` : "", `now: ${data.name}`, ""].map((words) => element("th", {}, words));
  byId("counts").replaceChildren(element("tr", {}, ...heads), ...data.counts.map(row));
  byId("counts-note").textContent = `Counted by the machine for the whole product, ${data.shape.join(" x ")} in ${data.math}. Less is better in every row.`;
}

function writeMeasured() {
  const found = data.measured, place = byId("measured");
  if (!found) return;
  const most = Math.max(...found.rows.map((each) => each.tflops));
  const bars = found.rows.flatMap((each) => {
    const css = each.name === data.name ? "here" : each.peer ? "peer" : "";
    const bar = element("span", { class: "bar", style: `width: calc(var(--full) * ${each.tflops / most})` });
    const share = each.ratio === null || each.peer ? "" : `, ${percent(each.ratio)} of cuBLAS`;
    return [element("div", { class: css }, each.label), element("div", { class: css }, bar, ` ${each.tflops.toPrecision(3)}${share}`)];
  });
  place.replaceChildren(element("h2", {}, `Measured: TFLOP/s at ${found.shape} in ${found.math}`), element("div", { class: "bars" }, ...bars), element("p", { class: "muted" }, `${found.device}, ${found.mode}, ${found.file}: one run, so the shares are of its own cuBLAS.`));
}

// ---- what the reader does ----

function go(moment) {
  state.moment = Math.min(Math.max(moment, 0), warpNow().moments.length - 1);
  show();
}

function skip(direction) {
  const { moments } = warpNow();
  let next = state.moment + direction;
  while (next > 0 && next < moments.length - 1 && moments[next].kind !== "wait") next += direction;
  go(next);
}

function toWarp(place) {
  state.warp = place % data.warps.length;
  writeRequests();
  writeChapters();
  go(state.moment);
}

function play() {
  clearInterval(state.playing);
  state.playing = state.playing ? null : setInterval(() => (state.moment < warpNow().moments.length - 1 ? go(state.moment + 1) : play()), 700);
  byId("play").textContent = state.playing ? "❚❚" : "▶";
}

function toLane(lane) {
  state.lane = (lane + LANES) % LANES;
  show();
}

const KEYS = {
  ArrowRight: () => go(state.moment + 1), ArrowLeft: () => go(state.moment - 1), PageDown: () => skip(1), PageUp: () => skip(-1),
  Home: () => go(0), End: () => go(Infinity), ArrowDown: () => toLane(state.lane + 1), ArrowUp: () => toLane(state.lane - 1),
  w: () => toWarp(state.warp + 1), " ": play,
};

document.addEventListener("keydown", (event) => {
  const typing = ["SELECT", "BUTTON", "SUMMARY", "PRE", "A"].includes(event.target.tagName) && !event.key.startsWith("Arrow") ;
  if (!KEYS[event.key] || typing || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  event.preventDefault();
  KEYS[event.key]();
});
byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
byId("back").addEventListener("click", () => go(state.moment - 1));
byId("forth").addEventListener("click", () => go(state.moment + 1));
byId("skip").addEventListener("click", () => skip(1));
byId("play").addEventListener("click", play);
byId("warp").addEventListener("change", (event) => toWarp(Number(event.target.value)));
byId("zoom").addEventListener("change", (event) => { state.zoom = event.target.checked; show(); });
window.addEventListener("resize", () => { show(); drawOpening(); });
for (const panel of ["memory", "where"]) {
  const lane = (event) => event.target.dataset?.lane;
  byId(panel).addEventListener("pointerover", (event) => lane(event) && inspect(Number(lane(event))));
  byId(panel).addEventListener("pointerleave", () => inspect(state.lane));
  byId(panel).addEventListener("click", (event) => lane(event) && toLane(Number(lane(event))));
}

writeHead();
writeSource();
writeCounts();
writeMeasured();
kindKey();
writeOpening();
drawOpening();
state.warp = opening?.place?.[0] ?? 0;
writeRequests();
writeChapters();
go(opening?.place?.[1] ?? worst());
