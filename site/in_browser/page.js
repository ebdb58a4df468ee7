// A rung of the ladder, run in this page: its PTX and its product may be changed.
(() => {
  const place = document.getElementById("rung-in-browser");
  if (!place) return;
  const here = document.currentScript?.src ?? document.querySelector('script[src*="in_browser/page.js"]').src;
  const byId = (name) => document.getElementById(`rib-${name}`);
  let worker = null, texts = {};

  place.innerHTML = `
    <p class="row"><button id="rib-start" class="md-button md-button--primary">Start Python here</button>
    <span id="rib-state" aria-live="polite">About 14 MB, of this site alone.</span></p>
    <form id="rib-form" hidden>
      <p class="row"><label>rung <select id="rib-rung"></select></label>
      <label>m <input id="rib-m" type="number" min="1" max="1024"></label>
      <label>n <input id="rib-n" type="number" min="1" max="1024"></label>
      <label>k <input id="rib-k" type="number" min="1" max="1024"></label>
      <label><input id="rib-races" type="checkbox"> look for races</label>
      <button id="rib-run" class="md-button md-button--primary">Run</button></p>
      <details><summary>PTX, which you may change</summary>
      <textarea id="rib-ptx" spellcheck="false" rows="22" aria-label="PTX"></textarea>
      <p class="row"><button id="rib-restore" type="button" class="md-button">Restore it</button></p></details>
    </form>
    <pre id="rib-verdict" hidden></pre>
    <iframe id="rib-lesson" title="what the rung did" hidden></iframe>`;

  const state = (words) => { byId("state").textContent = words; };

  function load(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = here.replace(/page\.js.*/, name);
      script.onload = resolve;
      script.onerror = () => reject(new Error(
        `${name} is not there. This site was built where Python for browsers could not be had`));
      document.head.append(script);
    });
  }

  async function unpacked(name) {
    const bytes = Uint8Array.from(atob(window.PARTS[name]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  async function start() {
    byId("start").disabled = true;
    try {
      state("loading");
      for (const name of ["runtime.js", "lapidist.js"]) await load(name);
      const files = {};
      for (const name of Object.keys(window.PARTS)) files[name] = await unpacked(name);
      window.PARTS = {};
      texts = JSON.parse(new TextDecoder().decode(files["texts.json"]));
      const names = Object.keys(texts);
      byId("rung").innerHTML = names
        .map((name, n) => `<option value="${name}">${String(n + 1).padStart(2, "0")} ${name}</option>`).join("");
      worker = new Worker(URL.createObjectURL(new Blob([files["worker.js"]], { type: "text/javascript" })));
      worker.onmessage = heard;
      worker.onerror = (error) => state(error.message);
      worker.postMessage({ files });
      byId("rung").value = "padded_tile" in texts ? "padded_tile" : names[0];
      choose();
    } catch (error) {
      state(error.message);
    }
  }

  function choose() {
    const { shape, ptx } = texts[byId("rung").value];
    ["m", "n", "k"].forEach((name, place) => { byId(name).value = shape[place]; });
    byId("ptx").value = ptx;
  }

  function run(event) {
    event.preventDefault();
    const rung = byId("rung").value, ptx = byId("ptx").value;
    const shape = ["m", "n", "k"].map((name) => Number(byId(name).value));
    byId("run").disabled = true;
    state("running");
    worker.postMessage({ ask: { rung, shape, ptx, races: byId("races").checked } });
  }

  function heard({ data }) {
    if (data.doing) return state(data.doing);
    byId("run").disabled = false;
    if (data.ready) {
      byId("form").hidden = false;
      byId("start").hidden = true;
      return state("Ready. Change a number, and run.");
    }
    const { right, verdict, page } = data.answer ?? { right: false, verdict: [data.failed], page: "" };
    state(page ? "Done: the lesson of this run is below." : "Done.");
    byId("verdict").hidden = false;
    byId("verdict").className = right ? "right" : "wrong";
    byId("verdict").textContent = verdict.join("\n\n");
    byId("lesson").hidden = !page;
    byId("lesson").srcdoc = page;
  }

  byId("start").addEventListener("click", start);
  byId("form").addEventListener("submit", run);
  byId("rung").addEventListener("change", choose);
  byId("restore").addEventListener("click", () => { byId("ptx").value = texts[byId("rung").value].ptx; });
})();
