// The page: reads its state from the address, shows the view that it names, and says what goes wrong.

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
  const titles = { 0: "The server is gone", 401: "A token is needed", 404: "It is not there", 413: "That is too large", 415: "That cannot be read", 422: "That cannot be read" };
  main.replaceChildren(notice(titles[error.status] ?? "That did not work", error.message, again));
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
// What is asked beside a view (the id of a point, say) has nobody else to tell that the server is gone.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof Trouble)) return;
  event.preventDefault();
  trouble(event.reason);
});
// The address is the page's state, which a link to a place in it would lose.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("content").focus();
});
listenForPictures(() => info ?? {});
show();
