// The map: all items in the plane. Drag to pan, scroll or pinch to zoom, click to search, lasso to inspect a group.

import { filterOf, go, read } from "./address.js";
import { ask, askPatiently, Trouble } from "./api.js";
import { counted, element, labelOf, notice, say } from "./elements.js";
import { filterPanel } from "./filters.js";
import { cssColour } from "./map_drawing.js";
import { idOf, imageAddress, mapGeometry, mapMask } from "./map_geometry.js";
import { gestures } from "./map_gestures.js";
import { MapScreen } from "./map_screen.js";
import { selectionPanel } from "./map_selection.js";

const LEGEND = 14;
let left = 0;

export const leaveMap = () => { left += 1; };

async function searchFrom(screen, place) {
  if (place >= 0) go({ view: "search", item: await idOf(screen.geometry, place), upload: null, from: 0 });
}

function hoverCard(screen, card) {
  let last = -1;
  return async (x, y) => {
    const place = x === null ? -1 : screen.placeAt(x, y, 10);
    screen.canvas.classList.toggle("on-point", place >= 0);
    if (place === last) return;
    last = place;
    card.hidden = place < 0;
    if (place < 0) return;
    const label = screen.geometry.names[screen.geometry.labels[place]] ?? null;
    const id = await idOf(screen.geometry, place);
    if (place !== last) return;
    const wide = screen.canvas.clientWidth;
    card.replaceChildren(screen.info.has_images ? element("img", { src: imageAddress(id, 256), alt: "" }) : "", element("span", {}, labelOf({ label })));
    card.style.left = `${Math.min(x + 16, wide - 150)}px`;
    card.style.top = `${y > 220 ? y - 190 : y + 16}px`;
  };
}

function legend(screen) {
  const { geometry } = screen;
  const order = [...geometry.counts.keys()].sort((a, b) => geometry.counts[b] - geometry.counts[a]);
  const list = element("ul", { class: "legend", "aria-label": "Labels" });
  const pick = (label, button) => {
    screen.only = screen.only === label ? null : label;
    for (const other of list.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button && screen.only !== null));
    screen.redraw();
  };
  const entry = (label) => {
    const dot = element("span", { class: "dot" });
    dot.style.background = cssColour(screen.colours[label]);
    const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => pick(label, button) },
      dot, element("span", { class: "bar-name", title: String(geometry.names[label]) }, String(geometry.names[label])), element("span", { class: "bar-count" }, geometry.counts[label]));
    return element("li", {}, button);
  };
  list.append(...order.slice(0, LEGEND).map(entry));
  if (order.length > LEGEND) {
    const all = element("li", {}, element("button", { type: "button", class: "quiet", onclick: () => all.replaceWith(...order.slice(LEGEND, 1000).map(entry)) }, `Show ${counted(order.length - LEGEND, "more label")}`));
    list.append(all);
  }
  return list;
}

function exportButton() {
  const words = "Export as Parquet";
  const button = element("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      await askPatiently("/export/ready", {}, (sentence) => { button.textContent = sentence; });
      button.textContent = words;
      location.assign("/export/map.parquet");
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      button.textContent = error.message;
    }
  } }, words);
  return button;
}

function describe(geometry) {
  if (geometry.method === "PCA") return "Layout: the first two principal components.";
  if (geometry.landmarks >= geometry.many) return "Layout: t-SNE. Similar items are close to each other; distances between separate clusters mean little.";
  return `Layout: t-SNE of ${counted(geometry.landmarks, "item")}, with the others next to their nearest neighbours. Distances between separate clusters mean little.`;
}

export async function showMap(main, info) {
  const mine = (left += 1);
  const alive = () => mine === left;
  document.title = `Map · ${info.name}`;
  if (!info.count) {
    main.replaceChildren(notice("This index is empty", "There are no items to show."));
    return;
  }
  const wait = (sentence) => main.replaceChildren(element("p", { class: "waiting", role: "status" }, sentence));
  const geometry = await mapGeometry(info, wait, alive);
  if (!geometry || !alive()) return;
  const state = read();
  const canvas = element("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "map", "aria-describedby": "map-help",
    "aria-label": `Map of ${counted(geometry.many, "item")} in ${counted(geometry.counts.length, "label")}` });
  const card = element("div", { class: "map-card", hidden: true });
  const selection = element("div", { class: "selection", "aria-live": "polite" });
  const lasso = element("button", { type: "button", "aria-pressed": "false", id: "lasso" }, "Lasso");
  const frame = element("div", { class: "map-frame" }, canvas, card);
  const names = element("p", { class: "hint", id: "map-names" });
  main.replaceChildren(element("div", { class: "mapping" },
    element("section", { class: "map-main", "aria-label": "Map" },
      element("div", { class: "toolbar map-tools" },
        element("div", { class: "settings" }, lasso,
          element("button", { type: "button", onclick: () => choose(screen.inView()) }, "Select all in view"),
          element("span", { class: "zoom" },
            element("button", { type: "button", "aria-label": "Zoom in", onclick: () => screen.zoom(1.5) }, "+"),
            element("button", { type: "button", "aria-label": "Zoom out", onclick: () => screen.zoom(1 / 1.5) }, "−")),
          element("button", { type: "button", onclick: () => screen.whereAll() }, "Reset view")),
        exportButton()),
      frame,
      names,
      element("p", { class: "hint", id: "map-help" }, `${describe(geometry)} Drag to pan, scroll or pinch to zoom, click an item to search from it. Keyboard: arrow keys to pan, + and − to zoom, 0 to reset, S to select all in view, Enter to search from the item in the centre.`)),
    element("aside", { class: "side" }, selection, filterPanel(info), element("details", { class: "filters", open: !matchMedia("(max-width: 60rem)").matches }, element("summary", {}, "Labels")))));
  const screen = new MapScreen(canvas, geometry, info, names);
  main.querySelector(".side > details:last-child").append(legend(screen));
  const choose = (places, line = null) => {
    screen.line = line;
    screen.redraw();
    selection.replaceChildren(selectionPanel(screen, places, () => choose(null)));
    if (places) say(`${counted(places.length, "item")} selected`);
  };
  gestures(screen, { lasso, choose, click: (place) => searchFrom(screen, place), hover: hoverCard(screen, card), centre: () => searchFrom(screen, screen.placeAt(canvas.clientWidth / 2, canvas.clientHeight / 2, 400)) });
  screen.shown = await mapMask(geometry, filterOf(state));
  if (state.item !== null) {
    screen.mark((await ask("/map/place", { item: state.item, generation: geometry.generation })).place);
  }
  canvas.dataset.points = geometry.many;
  screen.redraw();
}
