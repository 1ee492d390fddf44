// The selected items: their number, their labels, and some of their pictures.

import { changed } from "./address.js";
import { counted, element, labelOf, percent, picture } from "./elements.js";
import { imageAddress, idOf } from "./map_geometry.js";

const BARS = 8;
const PICTURES = 24;

function middleFirst(points, places) {
  let x = 0, y = 0;
  for (const place of places) { x += points[2 * place]; y += points[2 * place + 1]; }
  x /= places.length;
  y /= places.length;
  const far = (place) => (points[2 * place] - x) ** 2 + (points[2 * place + 1] - y) ** 2;
  return [...places].sort((one, other) => far(one) - far(other));
}

function bars(geometry, places) {
  const counts = new Map();
  for (const place of places) counts.set(geometry.labels[place], (counts.get(geometry.labels[place]) ?? 0) + 1);
  const order = [...counts].sort((one, other) => other[1] - one[1]);
  const rows = order.slice(0, BARS).map(([label, many]) => {
    const fill = element("span", { class: "bar-fill" });
    fill.style.width = `${(100 * many) / order[0][1]}%`;
    return element("li", {}, element("span", { class: "bar-name" }, labelOf({ label: geometry.names[label] ?? null })),
      element("span", { class: "bar-track" }, fill), element("span", { class: "bar-count" }, many));
  });
  if (order.length > BARS) rows.push(element("li", { class: "hint" }, `and ${counted(order.length - BARS, "more label")}`));
  const share = order.length ? percent(order[0][1] / places.length) : "";
  return [element("ul", { class: "bars" }, rows), order.length === 1 ? "All have the same label." : `${counted(order.length, "label")}; the most frequent has ${share} of the items.`];
}

export function selectionPanel(screen, places, clear) {
  if (!places) return "";
  const { geometry, info } = screen;
  const button = element("button", { type: "button", class: "quiet", onclick: clear }, "Clear");
  if (!places.length) return element("section", {}, element("h2", {}, "No items selected"), button);
  const [rows, sentence] = bars(geometry, places);
  const pictures = element("ul", { class: "thumbnails" });
  for (const place of middleFirst(geometry.points, places).slice(0, PICTURES)) {
    const holder = element("li");
    pictures.append(holder);
    const label = labelOf({ label: geometry.names[geometry.labels[place]] ?? null });
    idOf(geometry, place).then((id) => {
      const image = info.has_images ? imageAddress(id, 128).replace(/\?.*/, "") : null;
      holder.append(element("a", { href: changed({ view: "search", item: id, upload: null, from: 0 }), "aria-label": `Search from ${label}` }, picture({ id, image, label }, 128, "")));
    }, () => holder.remove());
  }
  return element("section", { "aria-label": "Selection" }, element("div", { class: "toolbar" }, element("h2", {}, counted(places.length, "item")), button),
    element("p", { class: "hint" }, sentence), rows, pictures);
}
