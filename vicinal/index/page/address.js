// The state of the page is in its address (#item=17&k=24&where=...), so that back, sharing and reloading work.

export function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  // An address such as /?item=17 means the same; it is what a program or a mail would write.
  if (!location.hash) for (const [name, value] of new URLSearchParams(location.search)) said.append(name, value);
  const whole = (name, usual, most) => {
    const number = Number.parseInt(said.get(name), 10);
    return Number.isFinite(number) && number >= 0 ? Math.min(number, most) : usual;
  };
  const view = ["search", "map", "inspect"].includes(said.get("view")) ? said.get("view") : "search";
  const queue = ["confused", "mislabelled", "duplicates"].includes(said.get("queue")) ? said.get("queue") : "confused";
  return {
    view,
    queue,
    item: said.get("item"),
    upload: said.get("upload"),
    k: Math.max(1, whole("k", 24, 1000)),
    fast: said.get("fast") === "1",
    from: whole("from", 0, 1e9),
    threshold: said.get("threshold") && Number.isFinite(Number(said.get("threshold"))) ? Number(said.get("threshold")) : null,
    where: said.getAll("where").filter((text) => text.trim()),
  };
}

function write(state) {
  const said = new URLSearchParams();
  if (state.view && state.view !== "search") said.set("view", state.view);
  if (state.view === "inspect" && state.queue !== "confused") said.set("queue", state.queue);
  for (const name of ["item", "upload"]) if (state[name] !== null && state[name] !== undefined) said.set(name, state[name]);
  if (state.k && state.k !== 24) said.set("k", state.k);
  if (state.fast) said.set("fast", "1");
  if (state.from) said.set("from", state.from);
  if (state.queue === "duplicates" && state.threshold !== null && state.threshold !== undefined) said.set("threshold", state.threshold);
  for (const text of state.where ?? []) said.append("where", text);
  return `#${said}`;
}

export const changed = (changes) => write({ ...read(), ...changes });

export function go(changes) {
  const address = changed(changes);
  if (address === location.hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}

// All conditions must hold; each is a whole expression of its own.
export const filterOf = (state) =>
  state.where.length > 1 ? state.where.map((text) => `(${text})`).join(" and ") : (state.where[0] ?? "");
