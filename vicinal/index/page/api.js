// Requests to the server. Every error becomes one sentence that the user can act on.

export class Trouble extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const GONE = "The server does not respond. If it was stopped, start it with vicinal serve and reload this page.";
const TOKEN = "This server requires a token. Reload the page to enter it.";

async function send(path, options) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(GONE);
  }
  if (reply.ok) return reply;
  if (reply.status === 401) throw new Trouble(TOKEN, 401);
  let sentence = `The server returned status ${reply.status}.`;
  try {
    const said = await reply.json();
    if (typeof said.error === "string") sentence = said.error;
  } catch {
    // not JSON of this server: only the status is known
  }
  throw new Trouble(sentence, reply.status);
}

const query = (values) => {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    if (value !== null && value !== undefined && value !== "") written.set(name, String(value));
  }
  const text = written.toString();
  return text ? `?${text}` : "";
};

const addressOf = (path, values) => path + query(values);

export async function ask(path, values, options) {
  return (await send(addressOf(path, values), options)).json();
}

export async function askBytes(path, values) {
  return (await send(addressOf(path, values))).arrayBuffer();
}

export const post = (path, body, values) =>
  ask(path, values, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const upload = (path, file, values, signal) =>
  ask(path, values, {
    method: "POST",
    headers: { "Content-Type": file.type.startsWith("image/") ? file.type : "image/unknown" },
    body: file,
    signal,
  });

// Some results take a while to compute once; until then the server replies with what it is doing.
export async function askPatiently(path, values, working, alive = () => true) {
  for (;;) {
    const reply = await ask(path, values);
    if (!reply.working) return reply;
    if (!alive()) return null;
    working(reply.working);
    await new Promise((resolve) => setTimeout(resolve, 700));
    if (!alive()) return null;
  }
}
