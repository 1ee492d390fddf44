// Why a hit was found: the numbers of one query and one hit, and the curve of the model's loss, in a dialog.

import { ask, Trouble } from "./api.js";
import { breakable, byId, counted, drawing, element, labelOf, percent, picture, similarityText } from "./elements.js";

const WIDE = 420, HIGH = 190, LEFT = 40, RIGHT = 12, TOP = 14, BOTTOM = 32;

function lossCurve(loss) {
  const { similarity, pull, push } = loss.curve;
  const inner = (values) => values.filter((_, place) => Math.abs(similarity[place]) < 0.97);
  const seen = [...inner(pull), ...inner(push), 0];
  const low = Math.min(...seen), high = Math.max(...seen, low + 1e-9);
  const x = (value) => LEFT + ((value + 1) / 2) * (WIDE - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (HIGH - TOP - BOTTOM);
  const path = (values) => values.map((value, place) => `${place ? "L" : "M"}${x(similarity[place]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const words = `Weight of a pair over its similarity under ${loss.name}. ${loss.sentence}`;
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
  // Where the pair lies, and where "same" begins.
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

function decision(why) {
  if (why.threshold === null) return fact("Same or different", "The model is not calibrated, so it has no threshold.");
  const sure = why.probability === null ? "" : `, with probability ${why.probability.toFixed(2)} if both are equally likely beforehand`;
  const promise = why.false_matches === null ? "" : ` At this threshold at most ${percent(why.false_matches)} of different pairs pass.`;
  return fact("Same or different", element("strong", {}, why.same ? "same" : "different"), `${sure}.${promise}`, thresholdLine(why));
}

function classBars(why) {
  return element("ul", { class: "bars" }, why.classes.slice(0, 6).map((entry) => {
    const bar = element("span", { class: "bar-fill" });
    bar.style.width = `${(100 * entry.items) / why.nearest}%`;
    return element("li", {}, element("span", { class: "bar-name" }, labelOf(entry)),
      element("span", { class: "bar-track" }, bar), element("span", { class: "bar-count" }, entry.items));
  }));
}

function centres(why) {
  if (!why.centres.length) return "No class has a centre here: there are no labels.";
  const [first, second] = why.centres;
  const words = [element("strong", {}, labelOf(first)), ` (${similarityText(first.similarity)})`];
  if (second) words.push(", then ", element("strong", {}, labelOf(second)), ` (${similarityText(second.similarity)})`);
  if (why.hit_centre && why.hit_centre.rank > 2) words.push(`; the hit's own class is number ${why.hit_centre.rank}`);
  return [...words, "."];
}

function lossPart(loss) {
  if (loss.unknown) return fact("What the loss would do", loss.unknown);
  return fact("What the loss would do", loss.sentence,
    element("figure", {}, lossCurve(loss),
      element("figcaption", {}, element("span", { class: "key pull" }, "pulled together, if one class"),
        element("span", { class: "key push" }, "pushed apart, if two"),
        element("span", { class: "hint" }, loss.note))));
}

function content(why, query, hit, info) {
  return [
    element("div", { class: "pair" },
      element("figure", {}, picture(query, 256, "The query"), element("figcaption", {}, breakable(`query: ${query.title}`))),
      element("figure", {}, picture(hit, 256, "The hit"), element("figcaption", {}, breakable(labelOf(hit))))),
    element("dl", { class: "reasons" },
      fact("Similarity", element("strong", {}, similarityText(why.similarity)), info.distance === "cosine" ? " (cosine)" : " (minus the distance)"),
      fact("Rank", `number ${why.rank} of ${counted(why.items, "item")}`),
      decision(why),
      fact(`Classes of the ${why.nearest} nearest`, classBars(why)),
      fact("Nearest class centres", centres(why)),
      lossPart(why.loss)),
  ];
}

export async function openWhy(query, hit, info) {
  const dialog = byId("dialog");
  const close = element("button", { type: "button", class: "quiet close", onclick: () => dialog.close(), "aria-label": "Close" }, "×");
  const body = element("div", { class: "why-body" }, element("p", { class: "waiting" }, "Looking …"));
  dialog.replaceChildren(element("header", {}, element("h2", { id: "dialog-title" }, "Why this one?"), close), body);
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
