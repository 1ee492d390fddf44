// Review: confused classes, possible label errors and duplicates, as queues of cases.

import { changed, go, read } from "./address.js";
import { askPatiently, post, Trouble } from "./api.js";
import { breakable, counted, element, labelOf, nameOf, notice, percent, picture, say, similarityText } from "./elements.js";

const PAGE = 20;
const QUEUES = {
  confused: ["Confused classes", "Pairs of classes whose items are often nearest to each other. The classes look alike, or some labels are wrong."],
  mislabelled: ["Label errors", "Items whose neighbours have a different label, the most suspicious first."],
  duplicates: ["Duplicates", "Identical and nearly identical items, those with different labels first."],
};
let visit = 0;

const itemLink = (item, note) =>
  element("figure", { class: "small" },
    element("a", { href: changed({ view: "search", item: item.id, upload: null, from: 0 }), "aria-label": `Search from ${labelOf(item)}, ${nameOf(item)}` }, picture(item, 192, "")),
    element("figcaption", {}, note ?? breakable(labelOf(item))));

function confused(entry) {
  const total = entry.first_as_second + entry.second_as_first;
  return element("article", { class: "case" },
    element("header", {},
      element("h3", {}, breakable(labelOf({ label: entry.first })), " and ", breakable(labelOf({ label: entry.second }))),
      element("p", { class: "hint" }, `${total} of ${counted(entry.items, "item")} (${percent(entry.share)}) have their nearest neighbour in the other class: ${entry.first_as_second} of ${labelOf({ label: entry.first })}, ${entry.second_as_first} of ${labelOf({ label: entry.second })}.`)),
    element("ul", { class: "pairs" }, entry.examples.map((pair) =>
      element("li", {}, itemLink(pair.item), itemLink(pair.nearest), element("span", { class: "similarity" }, similarityText(pair.similarity))))));
}

// A decision on one item: written to review.csv in the index folder, and can be changed at any time.
function decisions(item, queue, labels, proposed, made) {
  const status = element("p", { class: "decided", role: "status" });
  const wrong = element("p", { class: "wrong", role: "alert", hidden: true });
  const other = element("input", { type: "text", list: "all-labels", "aria-label": `New label of ${nameOf(item)}`, placeholder: "new label", autocomplete: "off" });
  if (proposed !== null && proposed !== undefined) other.value = String(proposed);
  const buttons = {};
  const shown = (review) => {
    item.review = review;
    for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(review?.decision === name));
    status.textContent = !review ? "" : review.decision === "relabel" ? `Relabel as ${review.new_label}` : review.decision === "keep" ? "Keep" : "Remove";
  };
  const decide = async (decision) => {
    wrong.hidden = true;
    try {
      const review = await post("/review", { item: item.id, decision, new_label: decision === "relabel" ? other.value : "", queue });
      const first = !item.review;
      shown(review);
      made(first);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  };
  for (const [name, words] of [["keep", "Keep"], ["relabel", "Relabel"], ["remove", "Remove"]]) {
    buttons[name] = element("button", { type: "button", "aria-pressed": "false", "data-decision": name, onclick: () => decide(name) }, words);
  }
  shown(item.review);
  return element("div", { class: "decisions" }, buttons.keep,
    labels ? [element("span", { class: "joined" }, buttons.relabel, other)] : null, buttons.remove, status, wrong);
}

// A case is settled if at most `spare` of its items have no decision; settled cases are marked and skipped.
function settling(items, spare, made) {
  const article = element("article", { class: "case", tabindex: "-1" });
  const mark = () => article.classList.toggle("settled", items.filter((item) => !item.review).length <= spare);
  mark();
  return [article, (first) => { mark(); made(first); }];
}

function mislabelled(entry, made) {
  const { item } = entry;
  const [article, decided] = settling([item], 0, made);
  article.classList.add("suspect");
  article.dataset.id = String(item.id);
  const strip = (title, items) => items.length ? element("div", {}, element("h4", {}, title), element("div", { class: "strip" }, items.map((one) => itemLink(one, "")))) : null;
  article.append(
    element("div", { class: "suspect-item" }, itemLink(item, nameOf(item))),
    element("div", { class: "suspect-words" },
      element("header", {},
        element("h3", {}, "Labelled ", element("mark", {}, breakable(labelOf(item))), ", possibly ", element("mark", { class: "proposed" }, breakable(labelOf({ label: entry.proposed })))),
        element("p", { class: "hint" }, `Probability that the label is wrong, estimated from the neighbours: ${percent(entry.score)}.`)),
      element("div", { class: "strips" }, strip(`Nearest ${labelOf(item)}`, entry.own), strip(`Nearest ${labelOf({ label: entry.proposed })}`, entry.other)),
      decisions(item, "mislabelled", true, entry.proposed, decided)));
  return article;
}

function duplicates(entry, made) {
  const why = { bytes: "identical files", looks: "identical pictures", embedding: "similar embeddings" };
  const many = counted(entry.items.length + entry.more, "item");
  const [article, decided] = settling(entry.items, 1 - entry.more, made); // one of several needs no decision
  article.append(
    element("header", {},
      element("h3", {}, entry.labels.length > 1 ? `${many} with different labels` : `${many} of ${labelOf({ label: entry.labels[0] })}`),
      element("p", { class: "hint" }, `${entry.kinds.map((kind) => why[kind] ?? kind).join(", ")}; similarity of at least ${similarityText(entry.similarity)}`)),
    element("ul", { class: "group" }, entry.items.map((item) =>
      element("li", { "data-id": String(item.id) }, itemLink(item, [breakable(labelOf(item)), element("br"), element("span", { class: "hint" }, breakable(nameOf(item)))]), decisions(item, "duplicates", false, null, decided)))),
    ...(entry.more > 0 ? [element("p", { class: "hint" }, `and ${counted(entry.more, "more item")}`)] : []));
  return article;
}

const DRAWN = { confused, mislabelled, duplicates };
const NOTHING = {
  confused: ["No confused classes", "Every labelled item is nearest to an item with the same label."],
  mislabelled: ["No label errors found", "No label clearly disagrees with the neighbours of its item."],
  duplicates: ["No duplicates found", "No two items are this similar."],
};

function tabs(queue) {
  return element("nav", { class: "tabs", "aria-label": "Queues" }, Object.entries(QUEUES).map(([name, [title]]) =>
    element("a", { href: changed({ queue: name, from: 0 }), "aria-current": name === queue ? "page" : null }, title)));
}

// How similar two items must be to count as duplicates.
function thresholdForm(state, info) {
  const value = element("input", { id: "threshold", type: "text", inputmode: "decimal", value: state.threshold ?? (info.distance === "cosine" ? "0.98" : ""), placeholder: "negative distance", autocomplete: "off" });
  return element("form", { class: "settings", onsubmit: (event) => {
    event.preventDefault();
    go({ threshold: value.value.trim() === "" ? null : Number(value.value), from: 0 });
  } }, element("label", { for: "threshold" }, "Minimum similarity ", value), element("button", { type: "submit" }, "Apply"));
}

// Go to the next case without a decision, on this page or a later one.
function undecidedButton(body, beyond) {
  let seen = -1;
  return element("button", { type: "button", id: "next-undecided", onclick: () => {
    const cases = [...body.querySelectorAll(".case")];
    const next = cases.findIndex((article, number) => number > seen && !article.classList.contains("settled"));
    if (next >= 0) {
      seen = next;
      cases[next].scrollIntoView({ block: "center" });
      cases[next].focus();
    } else if (beyond !== null) go({ from: beyond });
    else {
      seen = -1;
      say("All cases from here on have a decision.");
    }
  } }, "Next open case");
}

export async function showInspect(main, info) {
  const mine = (visit += 1);
  const state = read();
  const { queue } = state;
  const alive = () => mine === visit && read().view === "inspect";
  const [title, sentence] = QUEUES[queue];
  document.title = `${title} · ${info.name}`;
  const body = element("div", { class: `cases ${queue}` }, element("p", { class: "waiting" }, "Loading…"));
  const tally = element("p", { class: "hint", id: "tally" });
  main.replaceChildren(element("section", { class: "inspecting" }, element("h1", {}, "Review"), tabs(queue),
    element("div", { class: "toolbar" }, element("p", { class: "lead" }, sentence), tally), body));
  const wait = (words) => body.replaceChildren(element("p", { class: "waiting", role: "status" }, words));
  const reply = await askPatiently(`/inspect/${queue}`, { from: state.from, limit: PAGE, threshold: queue === "duplicates" ? state.threshold : null }, wait, alive);
  if (!reply || !alive()) return;
  if (reply.refused) {
    body.replaceChildren(notice("Not available", reply.refused));
    return;
  }
  let reviewed = reply.reviewed ?? 0;
  const count = () => {
    if (queue === "confused") return;
    tally.replaceChildren(`${counted(reviewed, "decision")} in `, element("a", { href: "/review.csv", download: "review.csv" }, "review.csv"), "; your files are not changed");
  };
  count();
  const made = (first) => { if (first) reviewed += 1; count(); }; // a new decision on an item replaces the previous one
  if (!reply.count) {
    body.replaceChildren(queue === "duplicates" ? thresholdForm(state, info) : "", notice(...NOTHING[queue]));
    return;
  }
  const last = state.from + reply.entries.length;
  body.replaceChildren(
    queue === "duplicates" ? thresholdForm(state, info) : "",
    element("p", { class: "hint" }, `${state.from + 1} to ${last} of ${counted(reply.count, "case")}${reply.asked ? `; from a random sample of ${counted(reply.asked, "item")}` : ""}`),
    queue === "confused" ? "" : undecidedButton(body, reply.next_undecided),
    element("datalist", { id: "all-labels" }, info.labels.map((label) => element("option", { value: String(label) }))),
    ...reply.entries.map((entry) => DRAWN[queue](entry, made)),
    element("nav", { class: "pages", "aria-label": "Pages" },
      state.from > 0 && element("a", { class: "button", href: changed({ from: Math.max(0, state.from - PAGE) }) }, "Previous"),
      last < reply.count && element("a", { class: "button", href: changed({ from: last }) }, "Next")));
}
