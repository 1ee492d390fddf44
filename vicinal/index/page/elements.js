// All elements are built here: text is inserted as text, so that no label or file name is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string" && typeof value !== "number") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const drawing = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children.flat(3));
  return node;
};

export const byId = (id) => document.getElementById(id);

export function say(sentence) {
  byId("spoken").textContent = sentence;
}

const QUIET = new Intl.NumberFormat("en-GB");
export const counted = (many, one, several = `${one}s`) => `${QUIET.format(many)} ${many === 1 ? one : several}`;
export const percent = (share) =>
  share > 0 && share < 0.01 ? "under 1 %" : share > 0.99 && share < 1 ? "over 99 %" : `${Math.round(100 * share)} %`;
export const similarityText = (value) => (Object.is(Math.round(value * 1000), -0) ? 0 : value).toFixed(3);

export const nameOf = (item) => (item.path ? item.path.split(/[\\/]/).pop() : String(item.id));
export const labelOf = (item) => (item.label === null || item.label === undefined ? "no label" : String(item.label));

// A name in which lines break only after separators and in camel case, as in reports.
const BREAKS = /(?<=[_\-+./])(?=[^_\-+./])|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/;
export const breakable = (name) =>
  name.split(BREAKS).flatMap((piece, number) => (number ? [element("wbr"), piece] : [piece]));

export function picture(item, size, alternative) {
  // Without a picture, or if it cannot be shown, the name of the item takes its place.
  const holder = element("span", { class: "picture" });
  const instead = () => holder.replaceChildren(element("span", { class: "no-picture" }, breakable(nameOf(item))));
  if (!item.image) instead();
  else {
    const address = item.image.startsWith("blob:") ? item.image : `${item.image}?size=${size}`;
    holder.append(
      element("img", { src: address, alt: alternative ?? labelOf(item), loading: "lazy", decoding: "async", onerror: instead }),
    );
  }
  return holder;
}

export const notice = (title, sentence, ...more) =>
  element("div", { class: "notice" }, element("h2", {}, title), element("p", {}, sentence), ...more);
