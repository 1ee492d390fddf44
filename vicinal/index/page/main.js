// The page: reads its state from the address, shows that view, and reports errors.

import { read } from "./address.js";
import { ask, Trouble } from "./api.js";
import { byId, counted, element, notice } from "./elements.js";
import { showInspect } from "./inspect_view.js";
import { leaveMap, showMap } from "./map_view.js";
import { listenForPictures, showSearch } from "./search_view.js";

const VIEWS = { search: showSearch, map: showMap, inspect: showInspect };
let info = null;

function mark(view) {
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function trouble(error) {
  const main = byId("content");
  const again = element("button", { type: "button", onclick: show }, "Try again");
  const titles = { 0: "Server not responding", 400: "Invalid request", 401: "Token required", 404: "Not found", 413: "File too large", 415: "Unsupported file", 422: "Invalid input" };
  main.replaceChildren(notice(titles[error.status] ?? "Something went wrong", error.message, again));
}

async function show() {
  const { view } = read();
  mark(view);
  if (view !== "map") leaveMap();
  byId("dialog").close();
  try {
    const before = info;
    info = await ask("/api/info");
    if (!before || before.generation !== info.generation) introduce();
    await VIEWS[view](byId("content"), info);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Trouble)) throw error;
    trouble(error);
  }
}

function introduce() {
  byId("name").textContent = info.name;
  byId("facts").textContent = `${counted(info.count, "item")} · ${info.dim} dimensions`;
}

addEventListener("hashchange", () => { scrollTo(0, 0); show(); });
// Requests outside of a view, such as for the id of a point, have no other error handler.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof Trouble)) return;
  event.preventDefault();
  trouble(event.reason);
});
// The address holds the state of the page, which a plain link to #content would overwrite.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("content").focus();
});
listenForPictures(() => info ?? {});
show();
