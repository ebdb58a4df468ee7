// Python in a thread of its own, so that the page stays alive while the machine runs. Nothing is fetched: what
// Pyodide asks for is answered from the files of the first message.
const files = {};
let python = null;

self.fetch = async (address) => {
  const name = String(address).split("/").pop();
  const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
  return name in files
    ? new Response(files[name], { headers: { "content-type": type } })
    : new Response("", { status: 404 });
};

const text = (name) => new TextDecoder().decode(files[name]);
const say = (doing) => self.postMessage({ doing });

async function begin(given) {
  Object.assign(files, given);
  say("starting Python");
  for (const name of ["pyodide.asm.js", "pyodide.js"]) (0, eval)(text(name));
  python = await self.loadPyodide({ indexURL: "https://nothing.invalid/", stdout: () => {}, stderr: () => {} });
  say("loading NumPy");
  await python.loadPackage("numpy", { messageCallback: () => {} });
  say("loading the machine");
  python.unpackArchive(files["lapidist.zip"], "zip", { extractDir: "/lapidist" });
  python.globals.set("TEXTS", text("texts.json"));
  python.runPython(`
import json, sys
sys.path.insert(0, "/lapidist")
from lapidist_lab.lessons.changed_rung import changed_rung
TEXTS = json.loads(TEXTS)

def answer(ask):
    ask = json.loads(ask)
    return json.dumps(changed_rung(TEXTS, ask["rung"], tuple(ask["shape"]), ask["ptx"], ask["races"]))
`);
  self.postMessage({ ready: true });
}

self.onmessage = async ({ data }) => {
  try {
    if (data.files) return await begin(data.files);
    const answer = python.globals.get("answer");
    self.postMessage({ answer: JSON.parse(answer(JSON.stringify(data.ask))) });
  } catch (error) {
    self.postMessage({ failed: String(error.message ?? error).trim().split("\n").pop() });
  }
};
