// Browsers start no worker for a page that is read from disk. This one runs the search in a hidden frame instead.
"use strict";

window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    this.receive = (event) => {
      if (event.source !== this.frame.contentWindow) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    };
    window.addEventListener("message", this.receive);
    const inside = this.frame.contentWindow;
    const script = inside.document.createElement("script");
    inside.postMessage = (data) => window.dispatchEvent(new MessageEvent("message", { data, source: inside }));
    script.src = url;
    script.onload = () => {
      this.ready = true;
      this.waiting.splice(0).forEach((data) => this.postMessage(data));
    };
    inside.document.body.append(script);
  }

  postMessage(data) {
    if (!this.ready) this.waiting.push(data);
    else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    window.removeEventListener("message", this.receive);
    this.frame.remove();
  }
};

if (location.protocol === "file:") window.Worker = window.IFrameWorker;
