// Search: a picture or an item as the query, and a grid of its nearest items, each of which can be the next query.

import { changed, filterOf, go, read } from "./address.js";
import { ask, post, upload } from "./api.js";
import { breakable, byId, counted, element, labelOf, nameOf, notice, picture, say, similarityText } from "./elements.js";
import { filterPanel } from "./filters.js";
import { openWhy } from "./why_view.js";

const COUNTS = [12, 24, 48, 96, 192];
const PAGE = 48; // items to start from
const uploads = new Map(); // uploaded pictures by their name in the address
let running = null;

function searchWith(file) {
  const name = `${Date.now().toString(36)}-${uploads.size}`;
  uploads.set(name, { file, image: URL.createObjectURL(file) });
  go({ view: "search", upload: name, item: null, from: 0 });
}

const settings = (state) => ({ k: state.k, where: filterOf(state), exact: state.fast ? "false" : "true" });

function chooser(words, attributes = {}) {
  const input = element("input", {
    type: "file", accept: "image/*", class: "spoken", ...attributes,
    onchange: () => input.files.length && searchWith(input.files[0]),
  });
  return element("label", { class: "button" }, input, words);
}

function inputs(info) {
  if (!info.can_embed) {
    return element("p", { class: "hint" }, "This index has no model, so it cannot search by picture. Start from an item instead.");
  }
  return element("div", { class: "inputs" }, chooser("Choose a picture", { id: "choose" }),
    chooser("Take a photo", { capture: "environment", id: "photograph" }));
}

const facts = (item) =>
  Object.entries(item.metadata ?? {}).slice(0, 6).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, String(value))));

function queryPanel(query, info) {
  return element("section", { class: "query", "aria-label": "Query" },
    picture(query, 512, `Query: ${query.title}`),
    element("div", { class: "query-words" },
      element("h1", {}, breakable(query.title)),
      element("p", { class: "hint" }, breakable(query.subtitle)),
      element("dl", { class: "metadata" }, facts(query)),
      query.item !== undefined && element("a", { class: "hint", href: changed({ view: "map", item: query.item }) }, "Show on the map")),
    inputs(info));
}

function verdict(hit, query) {
  if (hit.same !== null && hit.same !== undefined) {
    const sure = hit.probability === null || hit.probability === undefined ? "" : ` ${Math.round(100 * hit.probability)} %`;
    return element("span", { class: hit.same ? "badge same" : "badge different" }, (hit.same ? "same" : "different") + sure);
  }
  if (query.label === null || query.label === undefined || hit.label === null) return null;
  const alike = hit.label === query.label;
  return element("span", { class: alike ? "mark alike" : "mark unlike", title: alike ? "same label as the query" : "different label than the query" },
    alike ? "✓" : "≠", element("span", { class: "spoken" }, alike ? " same label" : " different label"));
}

function card(hit, rank, query, info) {
  const title = labelOf(hit);
  return element("li", { class: "hit" },
    element("a", { href: changed({ item: hit.id, upload: null, from: 0 }), "aria-label": `Search from ${title}, result ${rank}, similarity ${similarityText(hit.similarity)}` },
      picture(hit, 256, "")),
    element("div", { class: "hit-words" },
      element("span", { class: "label", title }, breakable(title)),
      element("span", { class: "similarity", title: info.distance === "cosine" ? "cosine similarity" : "negative Euclidean distance" }, similarityText(hit.similarity)),
      verdict(hit, query),
      element("button", { type: "button", class: "why", "aria-label": `Why ${title}, result ${rank}?`, onclick: () => openWhy(query, hit, info) }, "Why?")));
}

function toolbar(state, info, sentence) {
  const k = element("select", { id: "k", onchange: () => go({ k: Number(k.value) }) },
    [...new Set([...COUNTS, state.k])].sort((a, b) => a - b).map((many) => element("option", { value: many, selected: many === state.k }, many)));
  const method = element("select", { id: "way", onchange: () => go({ fast: method.value === "fast" }) },
    element("option", { value: "exact", selected: !state.fast }, "exact"),
    element("option", { value: "fast", selected: state.fast }, "fast"));
  return element("div", { class: "toolbar" },
    element("p", { id: "outcome" }, sentence),
    element("p", { id: "same-from", class: "hint", title: info.claim }, info.threshold === null
      ? "This index has no similarity threshold; run vicinal calibrate."
      : `Same from a similarity of ${similarityText(info.threshold)} on.`),
    element("div", { class: "settings" },
      element("label", { for: "k" }, "Show ", k),
      info.fast ? element("label", { for: "way" }, "Search ", method) : null));
}

function outcome(reply, info) {
  const took = reply.milliseconds < 1 ? "under 1 ms" : `${Math.round(reply.milliseconds)} ms`;
  const method = reply.exact ? "exact search" : `approximate search, recall ${(100 * reply.recall).toFixed(1)} %`;
  return `${reply.hits.length} nearest of ${counted(info.count, "item")} · ${method} · ${took}`;
}

async function answer(state, signal) {
  if (state.upload !== null) {
    const kept = uploads.get(state.upload);
    if (!kept) return { lost: true };
    const reply = await upload("/search", kept.file, settings(state), signal);
    const query = { image: kept.image, title: "Your picture", subtitle: kept.file.name || "pasted", label: null, upload: reply.upload, metadata: {} };
    return { reply, query };
  }
  const [reply, item] = await Promise.all([
    post("/search", { item: state.item }, settings(state)),
    ask(`/items/${encodeURIComponent(state.item)}`),
  ]);
  return { reply, query: { ...item, title: labelOf(item), subtitle: nameOf(item), item: item.id } };
}

async function showHits(main, state, info) {
  running = new AbortController();
  const { signal } = running;
  main.replaceChildren(element("p", { class: "waiting" }, "Searching…"));
  const { reply, query, lost } = await answer(state, signal);
  if (signal.aborted) return;
  if (lost) {
    main.replaceChildren(notice("Picture no longer available", "Uploaded pictures are kept only while the page is open. Choose the picture again.", inputs(info)));
    return;
  }
  const sentence = outcome(reply, info);
  const found = reply.hits.length
    ? element("ol", { class: "hits" }, reply.hits.map((hit, place) => card(hit, place + 1, query, info)))
    : notice("No items match the filter", "Remove one of its conditions.");
  main.replaceChildren(element("div", { class: "searching" },
    element("aside", { class: "side" }, queryPanel(query, info), filterPanel(info)),
    element("div", { class: "answers" }, toolbar(state, info, sentence), found)));
  document.title = `${query.title} · ${info.name}`;
  say(sentence);
}

function startCard(item) {
  const title = labelOf(item);
  return element("li", { class: "hit" },
    element("a", { href: changed({ item: item.id, upload: null, from: 0 }), "aria-label": `Search from ${title}, ${nameOf(item)}` }, picture(item, 256, "")),
    element("div", { class: "hit-words" }, element("span", { class: "label", title }, breakable(title))));
}

// A sample from the whole index: consecutive ids often belong to one class.
async function someItems(count) {
  const starts = Array.from({ length: 24 }, (_, turn) => Math.floor((turn * count) / 24));
  const lists = await Promise.all(starts.map((offset) => ask("/items", { limit: 1, offset })));
  return { items: lists.flatMap((list) => list.items), count };
}

async function showStart(main, state, info) {
  document.title = info.name;
  const filtered = state.where.length > 0;
  const sampled = !filtered && !state.from && info.count > 4 * PAGE;
  const listing = await (sampled ? someItems(info.count) : ask("/items", { where: filterOf(state), limit: PAGE, offset: state.from }));
  if (location.hash !== state.hash) return;
  const last = state.from + (sampled ? 0 : listing.items.length);
  const pages = element("nav", { class: "pages", "aria-label": "Pages" },
    state.from > 0 && element("a", { class: "button", href: changed({ from: Math.max(0, state.from - PAGE) }) }, "Previous"),
    last < listing.count && element("a", { class: "button", href: changed({ from: last || 1 }) }, "More items"));
  main.replaceChildren(
    element("section", { class: "start" },
      element("h1", {}, info.has_images ? "Find similar pictures" : "Find similar items"),
      info.can_embed && element("p", { class: "lead" }, matchMedia("(pointer: coarse)").matches ? "Choose a picture or take a photo." : "Drop or paste a picture anywhere on this page."),
      inputs(info)),
    element("section", { class: "begin", "aria-labelledby": "begin" },
      element("div", { class: "toolbar" },
        element("h2", { id: "begin" }, info.can_embed ? "Or start from an item" : "Start from an item"),
        element("p", { class: "hint" }, sampled ? `Sample of ${counted(info.count, "item")}` : listing.count ? `${state.from + 1} to ${last} of ${counted(listing.count, "item")}${filtered ? " that match the filter" : ""}` : "")),
      filterPanel(info),
      listing.items.length
        ? element("ol", { class: "hits" }, listing.items.map(startCard))
        : notice("No items match the filter", "Remove one of its conditions."),
      pages));
}

export async function showSearch(main, info) {
  running?.abort();
  const state = { ...read(), hash: location.hash };
  if (!info.count) {
    main.replaceChildren(notice("This index is empty", "Add pictures with vicinal index refresh FOLDER PHOTOS, then reload this page."));
    return;
  }
  if (state.item !== null || state.upload !== null) await showHits(main, state, info);
  else await showStart(main, state, info);
}

export function listenForPictures(info) {
  const curtain = byId("curtain");
  const images = (list) => [...(list ?? [])].find((file) => file.type.startsWith("image/")) ?? list?.[0];
  const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const take = (file) => (info().can_embed ? searchWith(file) : say("This index has no model, so it cannot search by picture."));
  let depth = 0;
  addEventListener("dragenter", (event) => { if (carriesFiles(event)) { depth += 1; curtain.hidden = false; } });
  addEventListener("dragleave", (event) => { if (carriesFiles(event) && --depth <= 0) { depth = 0; curtain.hidden = true; } });
  addEventListener("dragover", (event) => { if (carriesFiles(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    curtain.hidden = true;
    const file = images(event.dataTransfer.files);
    if (file) take(file);
  });
  addEventListener("paste", (event) => {
    const file = images(event.clipboardData?.files);
    if (file) { event.preventDefault(); take(file); }
  });
}
