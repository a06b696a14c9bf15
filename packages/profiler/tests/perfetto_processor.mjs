// Perfetto's trace processor, compiled to WebAssembly, run as its user interface runs it: in a web
// worker. The argument is the folder of engine_bundle.js. RPC requests come on stdin, replies go to
// stdout.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const folder = process.argv[2];
const replies = [];
const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };

// What the bundle needs of a browser.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = globalThis.constructor;
globalThis.location = new URL("http://localhost/engine_bundle.js");
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.response = fs.readFileSync(path.join(folder, path.basename(url)));
  }
  send() {}
};
console.log = console.warn = console.error; // stdout is for replies
Object.defineProperty(process.versions, "node", { value: undefined }); // it refuses to run in Node

vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
self.onmessage({ data: port });
setImmediate(() => {
  // What waited for the module has run by now.
  port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) });
  fs.writeFileSync(1, Buffer.concat(replies));
});
