// Asking the server. Whatever goes wrong becomes one sentence that a person can act on.

export class Trouble extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const GONE = "The server does not answer. It may have been stopped: start it again with vicinal serve, then reload.";
const TOKEN = "This server needs its token: reload the page, which asks for it.";

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
  let sentence = `The server answered ${reply.status}.`;
  try {
    const said = await reply.json();
    if (typeof said.error === "string") sentence = said.error;
  } catch {
    // not one of ours: the number has to do
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

// Some answers take the server a while, once: it says what it is doing until they are there.
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
