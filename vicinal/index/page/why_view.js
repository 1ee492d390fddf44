// Why a result was found: a summary and the numbers of one query and one result, and, folded, the loss of the model.

import { ask, Trouble } from "./api.js";
import { breakable, byId, counted, drawing, element, labelOf, picture, similarityText } from "./elements.js";

const WIDE = 420, HIGH = 190, LEFT = 40, RIGHT = 12, TOP = 14, BOTTOM = 32;

function lossCurve(loss) {
  const { similarity, pull, push } = loss.curve;
  const inner = (values) => values.filter((_, place) => Math.abs(similarity[place]) < 0.97);
  const seen = [...inner(pull), ...inner(push), 0];
  const low = Math.min(...seen), high = Math.max(...seen, low + 1e-9);
  const x = (value) => LEFT + ((value + 1) / 2) * (WIDE - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (HIGH - TOP - BOTTOM);
  const path = (values) => values.map((value, place) => `${place ? "L" : "M"}${x(similarity[place]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const words = `Weight of a pair by its similarity under ${loss.name}. ${loss.sentence}`;
  return drawing("svg", { class: "curve", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": words },
    drawing("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(0), y2: y(0) }),
    [-1, -0.5, 0, 0.5, 1].map((tick) => drawing("text", { x: x(tick), y: HIGH - 16, "text-anchor": "middle" }, String(tick))),
    drawing("text", { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 2, "text-anchor": "middle" }, "similarity of the pair"),
    drawing("text", { x: LEFT - 6, y: y(0) + 3, "text-anchor": "end" }, "0"),
    drawing("text", { x: 10, y: (TOP + HIGH - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${(TOP + HIGH - BOTTOM) / 2})` }, "weight"),
    drawing("path", { class: "pull", d: path(pull) }),
    drawing("path", { class: "push", d: path(push) }),
    drawing("line", { class: "here", x1: x(loss.at), x2: x(loss.at), y1: TOP, y2: HIGH - BOTTOM }),
    loss.together !== false ? drawing("circle", { class: "pull", cx: x(loss.at), cy: y(loss.pull_weight), r: 4.5 }) : [],
    loss.together !== true ? drawing("circle", { class: "push", cx: x(loss.at), cy: y(loss.push_weight), r: 4.5 }) : []);
}

function thresholdLine(why) {
  // The similarity of the pair on a scale, with the threshold.
  const values = [why.similarity, why.threshold, ...why.centres.map((centre) => centre.similarity)];
  const cosine = why.distance === "cosine";
  const low = cosine ? Math.min(0, ...values) : 1.15 * Math.min(...values), high = cosine ? 1 : 0;
  const x = (value) => 10 + ((value - low) / (high - low || 1)) * (WIDE - 20);
  return drawing("svg", { class: "curve", viewBox: `0 0 ${WIDE} 46`, role: "img", "aria-label": `Similarity ${similarityText(why.similarity)}, threshold ${similarityText(why.threshold)}` },
    drawing("line", { class: "grid", x1: 10, x2: WIDE - 10, y1: 22, y2: 22 }),
    drawing("line", { class: "same", x1: x(why.threshold), x2: WIDE - 10, y1: 22, y2: 22 }),
    drawing("line", { class: "here", x1: x(why.threshold), x2: x(why.threshold), y1: 12, y2: 32 }),
    drawing("text", { x: x(why.threshold), y: 43, "text-anchor": "middle" }, `threshold ${similarityText(why.threshold)}`),
    drawing("circle", { class: why.same ? "pull" : "push", cx: x(why.similarity), cy: 22, r: 6 }));
}

const fact = (name, ...value) => element("div", {}, element("dt", {}, name), element("dd", {}, ...value));

const label = (value) => element("strong", {}, breakable(labelOf({ label: value })));

function decision(why) {
  if (why.threshold === null) return null;
  const sure = why.probability === null ? "" : ` (probability ${why.probability.toFixed(2)}, with equal priors)`;
  const side = why.same ? "above" : "below";
  return fact("Same or different", element("strong", {}, why.same ? "same" : "different"), `${sure}: the similarity is ${side} the threshold of the model. ${why.claim}`, thresholdLine(why));
}

// What a user wants to know first, in one or two sentences.
function summary(why) {
  const [most] = why.classes;
  const closest = why.rank === 1 ? "This is the item most similar to the query" : `This is number ${why.rank} of ${counted(why.items, "item")}, sorted by similarity to the query`;
  const words = [`${closest}.`];
  if (most && most.label !== null && why.nearest > 1) words.push(` ${most.items} of the ${why.nearest} most similar items are labelled `, label(most.label), ".");
  return element("p", { class: "summary" }, ...words);
}

function classBars(why) {
  return element("ul", { class: "bars" }, why.classes.slice(0, 6).map((entry) => {
    const bar = element("span", { class: "bar-fill" });
    bar.style.width = `${(100 * entry.items) / why.nearest}%`;
    return element("li", {}, element("span", { class: "bar-name" }, breakable(labelOf(entry))),
      element("span", { class: "bar-track" }, bar), element("span", { class: "bar-count" }, entry.items));
  }));
}

function centres(why) {
  if (!why.centres.length) return "The items have no labels.";
  const [first, second] = why.centres;
  const words = [label(first.label), ` (${similarityText(first.similarity)})`];
  if (second) words.push(", then ", label(second.label), ` (${similarityText(second.similarity)})`);
  if (why.hit_centre && why.hit_centre.rank > 2) words.push(`; the label of this result is number ${why.hit_centre.rank}`);
  return [...words, "."];
}

function lossPart(loss) {
  const summary = element("summary", {}, "How the training loss treats this pair");
  if (loss.unknown) return element("details", { class: "loss" }, summary, element("p", {}, loss.unknown));
  return element("details", { class: "loss" }, summary,
    element("p", {}, loss.sentence),
    element("figure", {}, lossCurve(loss),
      element("figcaption", {}, element("span", { class: "key pull" }, "same class: pulled together"),
        element("span", { class: "key push" }, "different classes: pushed apart"),
        element("span", { class: "hint" }, loss.note))));
}

function content(why, query, hit, info) {
  return [
    element("div", { class: "pair" },
      element("figure", {}, picture(query, 256, "Query"), element("figcaption", {}, "Query: ", breakable(query.title))),
      element("figure", {}, picture(hit, 256, "Result"), element("figcaption", {}, "Result: ", breakable(labelOf(hit))))),
    summary(why),
    element("dl", { class: "reasons" },
      fact("Similarity", element("strong", {}, similarityText(why.similarity)), info.distance === "cosine" ? " (cosine; 1 is identical)" : " (negative distance; 0 is identical)"),
      decision(why),
      fact(`Labels of the ${why.nearest} most similar items`, classBars(why)),
      fact("Most similar classes on average", centres(why))),
    lossPart(why.loss),
  ];
}

export async function openWhy(query, hit, info) {
  const dialog = byId("dialog");
  const close = element("button", { type: "button", class: "quiet close", onclick: () => dialog.close(), "aria-label": "Close" }, "×");
  const body = element("div", { class: "why-body" }, element("p", { class: "waiting" }, "Loading…"));
  dialog.replaceChildren(element("header", {}, element("h2", { id: "dialog-title" }, "Why this result?"), close), body);
  dialog.showModal();
  try {
    const asked = query.upload ? { upload: query.upload, hit: hit.id } : { item: query.item, hit: hit.id };
    const why = await ask("/why", asked);
    body.replaceChildren(...content(why, query, hit, info));
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    body.replaceChildren(element("p", { class: "wrong", role: "alert" }, error.message));
  }
}
